#include "matmul_parts.h"

#include <cuda_bf16.h>

namespace kb::cuda {
namespace {

__global__ void __launch_bounds__(256) cut(const float* x, Parts p, __nv_bfloat16* to) {
  for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < p.rows * p.cols; i += int64_t(gridDim.x) * 256) {
    const int64_t row = i / p.cols, at = (row * 2) * p.cols + i;  // = row * 3 * cols + column
    float left = x[i];
#pragma unroll
    for (int part = 0; part < 3; ++part) {
      const __nv_bfloat16 y = __float2bfloat16_rn(left);
      to[at + part * p.cols] = y;
      const float taken = __bfloat162float(y);
      left = isfinite(taken) ? left - taken : 0;  // infinity and NaN are in the first part alone
    }
  }
}
__global__ void __launch_bounds__(256) add_parts(const float* x, Parts p, float* y, bool add) {
  for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < p.rows * p.cols; i += int64_t(gridDim.x) * 256) {
    const float* at = x + i / p.cols * 2 * p.cols + i;
    const float sum = at[2 * p.cols] + at[p.cols] + at[0];
    y[i] = add ? y[i] + sum : sum;
  }
}
unsigned blocks_of(const Parts& p) {
  const int64_t blocks = (p.rows * p.cols + 255) / 256;
  return unsigned(blocks < 132 * 16 ? blocks : 132 * 16);
}

}  // namespace

cudaError_t cut_in_three(const float* x, const Parts& p, void* to, cudaStream_t stream) {
  cut<<<blocks_of(p), 256, 0, stream>>>(x, p, static_cast<__nv_bfloat16*>(to));
  return cudaGetLastError();
}
cudaError_t add_three(const float* x, const Parts& p, float* y, bool add, cudaStream_t stream) {
  add_parts<<<blocks_of(p), 256, 0, stream>>>(x, p, y, add);
  return cudaGetLastError();
}

}  // namespace kb::cuda
