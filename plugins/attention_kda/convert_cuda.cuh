// convert_cuda.cuh: float and bf16 to and from the float that all arithmetic is done in.
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

}  // namespace kda::cuda
