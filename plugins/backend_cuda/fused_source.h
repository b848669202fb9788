// fused_source.h: CUDA C for a fused node (kitbash/fused.h).
#pragma once
#include <string>
#include <vector>

#include "kitbash/fused.h"

namespace kb::cuda {

struct FusedSource {
  std::string text;  // one kernel: extern "C" fused(inputs .., outputs .., long long elements, int vector)
  int unit =
      1;  // neighbouring elements that a thread has at once; with `vector`, operands that have one element an element are aligned to a unit
  std::vector<char> in_units;  // by input: is it read in units
  int64_t row = 0;             // elements of a row that is summed over, by `lanes` threads; 0: rows are not summed over
  int lanes = 1;
};
inline constexpr int kFusedThreads = 256;
// The types of the operands, and whether an index needs 64 bits.
FusedSource fused_source(const FusedProgram& p, const std::vector<uint32_t>& in, const std::vector<uint32_t>& out,
                         bool large);

}  // namespace kb::cuda
