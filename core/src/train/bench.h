// bench.h: how fast a recipe trains here, against what its matrix products alone would need at the machine's measured speed.
#pragma once
#include <string>
#include <vector>

#include "train/session.h"

namespace kitbash {

struct NodeTime {
  std::string where, op, kernel;
  int64_t nodes = 0;                          // of the programs; those of micro run once a micro-batch
  double seconds = 0, share = 0, gflops = 0;  // a step; of the step; GFLOP/s, 0 for ops without FLOPs worth naming
};
struct BenchResult {
  std::string stage;
  int64_t context = 0, batch_tokens = 0;
  double tokens_per_second = 0;  // median of the steps
  double product_flops = 0;      // matrix products, forward and backward, a token, in documents of the context
  double machine_gflops = 0;     // one matrix product
  std::string machine;           // which
  double ideal_tokens_per_second = 0;
  double product_share = 0;                  // of the time
  int64_t store_bytes = 0, arena_bytes = 0;  // planned
  int64_t peak_bytes = 0;         // of the process on the CPU; all that is in use on a GPU, with what the driver keeps
  double begin_seconds = 0;       // from the start of the process to the first step
  double start_seconds = 0;       // and to its end
  std::vector<NodeTime> slowest;  // the slowest first, by place and op
  std::vector<NodeTime> ops;      // likewise, by op and kernel over all places
};
// Random tokens in documents of the stage's context; `steps` timed steps after two that are not.
BenchResult bench_stage(Session& s, const Recipe& recipe, const StageConfig& stage, int steps);
// Of a square product of numbers of the type, 512 on the CPU and 8192 on a GPU.
double machine_gflops(Registry& registry, Device& device, uint32_t compute);
std::string bench_text(const BenchResult& r);

}  // namespace kitbash
