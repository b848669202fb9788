// loss_cuda.h: launchers of the loss over a vocabulary and of its gradient. Probabilities are never stored, logits
// are read as they are.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace kb::cuda::element {

// Rows with target < 0 or weight 0 count nothing, as do those from *in_use on (device memory; NULL: all count). A
// target past the vocabulary makes the loss NaN.
struct LossRows {
  const void* logits;  // [rows, n]
  uint32_t dtype;
  int64_t rows, n;
  const int32_t* target;
  const float* weight;  // NULL: 1
  const int32_t* in_use;
};
// sum, lse: NULL where not wanted. losses [rows]: workspace.
void cross_entropy(const LossRows& r, float* sum, float* lse, float* losses, cudaStream_t s);
void cross_entropy_backward(const LossRows& r, const float* lse, const float* up, void* dlogits, cudaStream_t s);

}  // namespace kb::cuda::element
