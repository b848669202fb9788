// adamw_cuda.h: the launcher of the CUDA kernel of one AdamW step. All pointers are device memory; nothing waits.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace adamw_cuda {

struct Step {
  const float *w, *g, *m, *v;  // [n]
  const float *lr, *step;      // []
  const float* scale;          // [] of g, or null
  float *w2, *m2, *v2;         // [n]; w, m and v themselves, or other memory
  void* copy;                  // [n] w in bf16, or null
  int64_t n;
  double log_beta1, log_beta2;       // for 1 - beta^step
  float beta1, beta2, keep1, keep2;  // keep: 1 - beta
  float eps, decay;
};
cudaError_t step(const Step& a, cudaStream_t stream);

}  // namespace adamw_cuda
