// Grouped products without tensor cores: 64x64 tiles of the result through shared memory, 4x4 numbers a thread.
#include <cuda_bf16.h>

#include "grouped_cuda.h"

namespace kb::cuda {
namespace {

constexpr int kTile = 64, kDepth = 16, kThreads = 256, kPad = 4;

__device__ float wide(float x) { return x; }
__device__ float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class T>
__device__ T narrow(float x) {
  if constexpr (sizeof(T) == 4)
    return x;
  else
    return __float2bfloat16_rn(x);
}

// A matrix inside memory. Rows: those of the result (a) or its columns (b); its other axis is summed over.
template <class T>
struct Side {
  const T* at;
  int64_t row, depth;  // strides; one of them is 1
};

// One tile [64 x 64] of y = a b at (m0, n0), of m x n x k.
template <class T, class Y, bool ADeep, bool BDeep>  // which stride is 1: that axis runs along the threads
__device__ void tile(Side<T> a, Side<T> b, int64_t m, int64_t n, int64_t k, int64_t m0, int64_t n0, bool add, Y* y) {
  __shared__ float as[kDepth][kTile + kPad], bs[kDepth][kTile + kPad];
  const int t = int(threadIdx.x), ty = t / 16 * 4, tx = t % 16 * 4;
  float sum[4][4] = {};
  for (int64_t k0 = 0; k0 < k; k0 += kDepth) {
    for (int i = t; i < kTile * kDepth; i += kThreads) {
      const int ar = ADeep ? i / kDepth : i % kTile, ad = ADeep ? i % kDepth : i / kTile;
      as[ad][ar] = m0 + ar < m && k0 + ad < k ? wide(a.at[(m0 + ar) * a.row + (k0 + ad) * a.depth]) : 0.f;
      const int br = BDeep ? i / kDepth : i % kTile, bd = BDeep ? i % kDepth : i / kTile;
      bs[bd][br] = n0 + br < n && k0 + bd < k ? wide(b.at[(n0 + br) * b.row + (k0 + bd) * b.depth]) : 0.f;
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      const float4 p = *reinterpret_cast<const float4*>(&as[d][ty]), q = *reinterpret_cast<const float4*>(&bs[d][tx]);
      const float pa[4] = {p.x, p.y, p.z, p.w}, qb[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(pa[i], qb[j], sum[i][j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t r = m0 + ty + i, c = n0 + tx + j;
      if (r < m && c < n) y[r * n + c] = narrow<Y>(add ? sum[i][j] + wide(y[r * n + c]) : sum[i][j]);
    }
}

// grid: column tiles, experts, shares of an expert's row tiles
template <class T, bool Tw>
__global__ void __launch_bounds__(kThreads)
    linear(LinearShape s, const T* x, const T* w, const int32_t* offsets, T* y) {
  const int64_t e = blockIdx.y, begin = offsets[e], count = offsets[e + 1] - begin;
  const Side<T> b{w + e * s.in * s.out, Tw ? s.in : 1, Tw ? 1 : s.out};
  for (int64_t m0 = int64_t(blockIdx.z) * kTile; m0 < count; m0 += int64_t(gridDim.z) * kTile)
    tile<T, T, true, Tw>({x + begin * s.in, s.in, 1}, b, count, s.out, s.in, m0, int64_t(blockIdx.x) * kTile, s.add,
                         y + begin * s.out);
}

// grid: column tiles, row tiles, experts
template <class T, class Y>
__global__ void __launch_bounds__(kThreads) outer(OuterShape s, const T* a, const T* b, const int32_t* offsets, Y* y) {
  const int64_t e = blockIdx.z, begin = offsets[e], count = offsets[e + 1] - begin;
  tile<T, Y, false, false>({a + begin * s.o, 1, s.o}, {b + begin * s.i, 1, s.i}, s.o, s.i, count,
                           int64_t(blockIdx.y) * kTile, int64_t(blockIdx.x) * kTile, s.add, y + e * s.o * s.i);
}

template <class T>
__global__ void __launch_bounds__(256) clear_outside(LinearShape s, const int32_t* offsets, T* y) {
  const int64_t head = offsets[0] * s.out, tail = offsets[s.experts] * s.out, step = int64_t(gridDim.x) * 256;
  for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < head; i += step) y[i] = T(0.f);
  for (int64_t i = tail + int64_t(blockIdx.x) * 256 + threadIdx.x; i < s.rows * s.out; i += step) y[i] = T(0.f);
}

unsigned tiles(int64_t n) { return unsigned((n + kTile - 1) / kTile); }

template <class T>
cudaError_t linear_as(const LinearShape& s, const void* x, const void* w, const int32_t* offsets, void* y,
                      cudaStream_t stream) {
  if (s.rows * s.out == 0) return cudaSuccess;
  if (!s.add) clear_outside<T><<<128, 256, 0, stream>>>(s, offsets, static_cast<T*>(y));
  const int64_t even = (s.rows + kTile * s.experts - 1) / (kTile * s.experts);  // row tiles of an average expert
  const dim3 grid(tiles(s.out), unsigned(s.experts), unsigned(even < 4 ? 4 : even < 64 ? even : 64));
  const auto kernel = s.tw ? linear<T, true> : linear<T, false>;
  kernel<<<grid, kThreads, 0, stream>>>(s, static_cast<const T*>(x), static_cast<const T*>(w), offsets,
                                        static_cast<T*>(y));
  return cudaGetLastError();
}
template <class T, class Y>
cudaError_t outer_as(const OuterShape& s, const void* a, const void* b, const int32_t* offsets, void* y,
                     cudaStream_t stream) {
  if (s.experts * s.o * s.i == 0) return cudaSuccess;
  const dim3 grid(tiles(s.i), tiles(s.o), unsigned(s.experts));
  outer<T, Y><<<grid, kThreads, 0, stream>>>(s, static_cast<const T*>(a), static_cast<const T*>(b), offsets,
                                             static_cast<Y*>(y));
  return cudaGetLastError();
}

}  // namespace

cudaError_t grouped_linear_simt(const LinearShape& s, bool bf16, const void* x, const void* w, const int32_t* offsets,
                                void* y, cudaStream_t stream) {
  return bf16 ? linear_as<__nv_bfloat16>(s, x, w, offsets, y, stream) : linear_as<float>(s, x, w, offsets, y, stream);
}
cudaError_t grouped_outer_simt(const OuterShape& s, bool bf16, bool to_f32, const void* a, const void* b,
                               const int32_t* offsets, void* y, cudaStream_t stream) {
  if (!bf16) return outer_as<float, float>(s, a, b, offsets, y, stream);
  return to_f32 ? outer_as<__nv_bfloat16, float>(s, a, b, offsets, y, stream)
                : outer_as<__nv_bfloat16, __nv_bfloat16>(s, a, b, offsets, y, stream);
}

}  // namespace kb::cuda
