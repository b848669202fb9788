// launch.h: a node of a bound program, ready to be launched.
#pragma once
#include <vector>

#include "runtime/program.h"

namespace kitbash {

struct Program::Launch {
  int32_t position = 0;
  NodeId node = 0;
  NodeCall call;
  const kb_kernel* kernel = nullptr;
  void* plan = nullptr;
  struct Tail {  // rows of an output past its extent, which must be zero
    char* data;
    uint32_t extent;
    int64_t rows, row_bytes;
  };
  std::vector<Tail> tails;
};

}  // namespace kitbash
