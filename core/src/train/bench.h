// bench.h: how fast a recipe trains here, against what its matrix products alone would need at the machine's measured speed.
#pragma once
#include <string>
#include <vector>

#include "train/session.h"

namespace kitbash {

struct NodeTime {
  std::string where, op, kernel;
  double seconds = 0, share = 0, gflops = 0;  // a step; of the step; GFLOP/s, 0 for ops without FLOPs worth naming
};
struct BenchResult {
  std::string stage;
  int64_t context = 0, batch_tokens = 0;
  double tokens_per_second = 0;  // median of the steps
  double product_flops = 0;      // matrix products, forward and backward, a token
  double machine_gflops = 0;     // float matrix product of 512 x 512 x 512
  double ideal_tokens_per_second = 0;
  double product_share = 0;       // of the time
  double start_seconds = 0;       // from the start of the process to the end of the first step
  std::vector<NodeTime> slowest;  // ten, by place and op
};
// Random tokens in documents of the stage's context; `steps` timed steps after two that are not.
BenchResult bench_stage(Session& s, const Recipe& recipe, const StageConfig& stage, int steps);
double machine_gflops(Registry& registry, Device& device);
std::string bench_text(const BenchResult& r);

}  // namespace kitbash
