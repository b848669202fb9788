// softmax.cu: over rows, which stay in registers as far as they fit; longer rows take a block that reads them three
// times, the second and third time from the cache.
#include "element.cuh"
#include "reduce_cuda.h"
#include "row_plan.cuh"

namespace kb::cuda::element {
namespace {

// The hardware's exponential is off by 2 ulp and 1e-7 of the exponent: good enough where bf16 is written.
template <class T>
__device__ inline float exponential(float v) {
  return sizeof(T) == 2 ? __expf(v) : expf(v);
}

template <class T, int V, int P>
__global__ void __launch_bounds__(kMostThreads) softmax_kept(const T* x, T* y, int64_t rows, int n, int threads) {
  __shared__ float room[32];
  const int64_t row = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / threads;
  const int lane = threadIdx.x % threads;
  const bool mine = row < rows;
  float f[P][V], peak = -INFINITY, sum = 0;
#pragma unroll
  for (int p = 0; p < P; ++p) {
    const int i = (lane + p * threads) * V;
    if (mine && i < n) {
      load(x + row * n + i, f[p]);
    } else {
#pragma unroll
      for (int k = 0; k < V; ++k) f[p][k] = -INFINITY;
    }
#pragma unroll
    for (int k = 0; k < V; ++k) peak = fmaxf(peak, f[p][k]);
  }
  peak = threads > 32 ? block_max(peak, room) : warp_max(peak, threads);
#pragma unroll
  for (int p = 0; p < P; ++p) {
    if ((lane + p * threads) * V >= n) continue;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      f[p][k] = exponential<T>(f[p][k] - peak);
      sum += f[p][k];
    }
  }
  const float by = 1.0f / (threads > 32 ? block_sum(sum, room) : warp_sum(sum, threads));
  if (!mine) return;
#pragma unroll
  for (int p = 0; p < P; ++p) {
    const int i = (lane + p * threads) * V;
    if (i >= n) continue;
#pragma unroll
    for (int k = 0; k < V; ++k) f[p][k] *= by;
    store(y + row * n + i, f[p]);
  }
}

template <class T>
__global__ void __launch_bounds__(1024) softmax_long(const T* x, T* y, int64_t n) {
  __shared__ float room[32];
  const T* from = x + blockIdx.x * n;
  T* to = y + blockIdx.x * n;
  float peak = -INFINITY, sum = 0;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) peak = fmaxf(peak, widen(from[i]));
  peak = block_max(peak, room);
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += exponential<T>(widen(from[i]) - peak);
  const float by = 1.0f / block_sum(sum, room);
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) to[i] = narrow<T>(exponential<T>(widen(from[i]) - peak) * by);
}

}  // namespace

void softmax(const void* x, void* y, uint32_t dtype, int64_t rows, int64_t n, cudaStream_t s) {
  if (rows * n == 0) return;
  RowPlan p;
  if (n < int64_t(1) << 30 && plan_row(dtype, n, (uintptr_t(x) | uintptr_t(y)) % 16 == 0, p))
    return dispatch(dtype, p, [&]<class T, int V, int P>() {
      const int64_t groups = p.block / p.threads;
      softmax_kept<T, V, P><<<unsigned((rows + groups - 1) / groups), p.block, 0, s>>>(
          static_cast<const T*>(x), static_cast<T*>(y), rows, int(n), p.threads);
    });
  if (dtype == KB_BF16)
    softmax_long<<<unsigned(rows), 1024, 0, s>>>(static_cast<const Bf16*>(x), static_cast<Bf16*>(y), n);
  else
    softmax_long<<<unsigned(rows), 1024, 0, s>>>(static_cast<const float*>(x), static_cast<float*>(y), n);
}

}  // namespace kb::cuda::element
