// convert_cuda.cuh: float and bf16 to and from the float that all arithmetic is done in, and its sums over a warp.
#pragma once
#include <cuda_bf16.h>

namespace kda::cuda {

using bf16 = __nv_bfloat16;

__device__ inline float to_float(float x) { return x; }
__device__ inline float to_float(bf16 x) { return __bfloat162float(x); }
template <class T>
__device__ inline T from_float(float x) {
  if constexpr (sizeof(T) == 4)
    return x;
  else
    return __float2bfloat16_rn(x);
}

// Sums x[n] over the lanes of a warp for every n < N in rounds that halve what is left to move. Lane l returns the sum of
// x[l * N / 32]; N <= 32.
template <int N>
__device__ inline float sum_lanes(float (&x)[N]) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int round = 0; round < 5; ++round) {
    const int half = N >> (round + 1), at = 16 >> round;
    if (half == 0) break;
#pragma unroll
    for (int n = 0; n < N / 2; ++n) {
      if (n >= half) break;
      const bool upper = lane & at;
      const float keep = upper ? x[n + half] : x[n], give = upper ? x[n] : x[n + half];
      x[n] = keep + __shfl_xor_sync(~0u, give, at);
    }
  }
  float sum = x[0];
#pragma unroll
  for (int at = 16 / N; at >= 1; at /= 2) sum += __shfl_xor_sync(~0u, sum, at);
  return sum;
}

}  // namespace kda::cuda
