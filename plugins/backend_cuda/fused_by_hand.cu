// Hand-written kernels that fused ones are measured against: 16 bytes of bf16 a thread and operand.
#include "element.cuh"
#include "fused_by_hand.h"

namespace kb::cuda {
namespace {

using element::Bf16;

__device__ inline float sigmoid(float x) { return __fdividef(1.0f, 1.0f + __expf(-x)); }

__global__ void __launch_bounds__(256) swiglu_kernel(const Bf16* gate, const Bf16* up, Bf16* y, int64_t n) {
  const int64_t i = (int64_t(blockIdx.x) * 256 + threadIdx.x) * 8;
  if (i >= n) return;
  float g[8], u[8];
  element::load(gate + i, g), element::load(up + i, u);
#pragma unroll
  for (int k = 0; k < 8; ++k) g[k] = g[k] * sigmoid(g[k]) * u[k];
  element::store(y + i, g);
}
__global__ void __launch_bounds__(256)
    swiglu_backward_kernel(const Bf16* gate, const Bf16* up, const Bf16* dy, Bf16* dgate, Bf16* dup, int64_t n) {
  const int64_t i = (int64_t(blockIdx.x) * 256 + threadIdx.x) * 8;
  if (i >= n) return;
  float g[8], u[8], d[8];
  element::load(gate + i, g), element::load(up + i, u), element::load(dy + i, d);
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const float s = sigmoid(g[k]), silu = g[k] * s;
    g[k] = d[k] * u[k] * (s + silu * (1 - s));
    u[k] = d[k] * silu;
  }
  element::store(dgate + i, g), element::store(dup + i, u);
}

}  // namespace

void swiglu_by_hand(const void* gate, const void* up, void* y, int64_t n, cudaStream_t s) {
  swiglu_kernel<<<unsigned((n + 2047) / 2048), 256, 0, s>>>(static_cast<const Bf16*>(gate),
                                                            static_cast<const Bf16*>(up), static_cast<Bf16*>(y), n);
}
void swiglu_backward_by_hand(const void* gate, const void* up, const void* dy, void* dgate, void* dup, int64_t n,
                             cudaStream_t s) {
  swiglu_backward_kernel<<<unsigned((n + 2047) / 2048), 256, 0, s>>>(
      static_cast<const Bf16*>(gate), static_cast<const Bf16*>(up), static_cast<const Bf16*>(dy),
      static_cast<Bf16*>(dgate), static_cast<Bf16*>(dup), n);
}

}  // namespace kb::cuda
