// fused_by_hand.h: what the benchmark of fused kernels compares them with. n is a multiple of 8.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace kb::cuda {
void swiglu_by_hand(const void* gate, const void* up, void* y, int64_t n, cudaStream_t s);
void swiglu_backward_by_hand(const void* gate, const void* up, const void* dy, void* dgate, void* dup, int64_t n,
                             cudaStream_t s);
}  // namespace kb::cuda
