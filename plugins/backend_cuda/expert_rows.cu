// Rows to experts and back. Both move memory: 16 bytes a thread at a time where widths and addresses allow it.
#include <cuda_bf16.h>

#include "experts_cuda.h"

namespace kb::cuda {
namespace {

bool aligned16(int64_t width, const void* a, const void* b) {
  return width % 16 == 0 && reinterpret_cast<uintptr_t>(a) % 16 == 0 && reinterpret_cast<uintptr_t>(b) % 16 == 0;
}
// Threads along a row (x) and rows of a block (y).
dim3 block_for(int64_t units) {
  unsigned x = 8;
  while (x < 256 && x < units) x *= 2;
  return dim3(x, 256 / x);
}
unsigned blocks_for(int64_t rows, dim3 block) { return unsigned((rows + block.y - 1) / block.y); }

constexpr int kRowsFlight = 4;  // rows of a thread that are on their way at a time

// units: V's in a row
template <class V>
__global__ void __launch_bounds__(256)
    send(int64_t rows, int64_t units, int32_t active, const V* from, const int32_t* source, V* to) {
  const int64_t first = int64_t(blockIdx.x) * blockDim.y * kRowsFlight + threadIdx.y;
  int32_t token[kRowsFlight];  // -1: zeros
#pragma unroll
  for (int f = 0; f < kRowsFlight; ++f) {
    const int64_t r = first + f * blockDim.y;
    const int32_t s = r < rows ? source[r] : -1;
    token[f] = s < 0 ? -1 : s / active;
  }
  for (int64_t i = threadIdx.x; i < units; i += blockDim.x) {
    V v[kRowsFlight];
#pragma unroll
    for (int f = 0; f < kRowsFlight; ++f) v[f] = token[f] < 0 ? V{} : from[token[f] * units + i];
#pragma unroll
    for (int f = 0; f < kRowsFlight; ++f) {
      const int64_t r = first + f * blockDim.y;
      if (r < rows) to[r * units + i] = v[f];
    }
  }
}

__global__ void __launch_bounds__(256) invert(int64_t rows, int64_t choices, const int32_t* source, int32_t* inverse) {
  const int64_t r = int64_t(blockIdx.x) * 256 + threadIdx.x;
  if (r < rows && source[r] >= 0 && source[r] < choices) inverse[source[r]] = int32_t(r);
}

template <class T>
struct Lanes;
template <>
struct Lanes<float> {
  static __device__ float wide(float x) { return x; }
  static __device__ float narrow(float x) { return x; }
};
template <>
struct Lanes<__nv_bfloat16> {
  static __device__ float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
  static __device__ __nv_bfloat16 narrow(float x) { return __float2bfloat16_rn(x); }
};
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T at[N];
};

constexpr int kFlight = 8;  // rows that are on their way at a time

template <class T, int N>
__global__ void __launch_bounds__(256)
    sum_rows(int64_t tokens, int active, int64_t units, const Pack<T, N>* x, const int32_t* inverse, Pack<T, N>* y) {
  const int64_t t = int64_t(blockIdx.x) * blockDim.y + threadIdx.y;
  if (t >= tokens) return;
  for (int64_t i = threadIdx.x; i < units; i += blockDim.x) {
    float sum[N] = {};
    for (int j = 0; j < active; j += kFlight) {
      Pack<T, N> p[kFlight];
      int32_t row[kFlight];
#pragma unroll
      for (int f = 0; f < kFlight; ++f) {
        row[f] = j + f < active ? inverse[t * active + j + f] : -1;
        if (row[f] >= 0) p[f] = x[row[f] * units + i];
      }
#pragma unroll
      for (int f = 0; f < kFlight; ++f)
        if (row[f] >= 0)
#pragma unroll
          for (int k = 0; k < N; ++k) sum[k] += Lanes<T>::wide(p[f].at[k]);
    }
    Pack<T, N> out;
#pragma unroll
    for (int k = 0; k < N; ++k) out.at[k] = Lanes<T>::narrow(sum[k]);
    y[t * units + i] = out;
  }
}

template <class T, int N>
void sum_as(int64_t tokens, int64_t active, int64_t width, const void* x, const int32_t* inverse, void* y,
            cudaStream_t stream) {
  const dim3 block = block_for(width / N);
  sum_rows<T, N><<<blocks_for(tokens, block), block, 0, stream>>>(
      tokens, int(active), width / N, static_cast<const Pack<T, N>*>(x), inverse, static_cast<Pack<T, N>*>(y));
}

template <class V>
void send_as(int64_t rows, int64_t width, int64_t active, const void* from, const int32_t* source, void* to,
             cudaStream_t stream) {
  const int64_t units = width / int64_t(sizeof(V));
  const dim3 block = block_for(units);
  const int64_t at_a_time = int64_t(block.y) * kRowsFlight;
  send<V><<<unsigned((rows + at_a_time - 1) / at_a_time), block, 0, stream>>>(
      rows, units, int32_t(active), static_cast<const V*>(from), source, static_cast<V*>(to));
}

}  // namespace

cudaError_t dispatch(int64_t rows, int64_t width, int64_t active, const void* from, const int32_t* source, void* to,
                     cudaStream_t stream) {
  if (rows * width == 0) return cudaSuccess;
  if (aligned16(width, from, to))
    send_as<uint4>(rows, width, active, from, source, to, stream);
  else if (width % 4 == 0)
    send_as<uint32_t>(rows, width, active, from, source, to, stream);
  else
    send_as<uint16_t>(rows, width, active, from, source, to, stream);
  return cudaGetLastError();
}

cudaError_t combine(bool bf16, int64_t rows, int64_t tokens, int64_t active, int64_t width, const void* x,
                    const int32_t* source, int32_t* inverse, void* y, cudaStream_t stream) {
  if (tokens * width == 0) return cudaSuccess;
  const cudaError_t e = cudaMemsetAsync(inverse, 0xff, size_t(tokens * active) * 4, stream);
  if (e != cudaSuccess) return e;
  if (rows) invert<<<unsigned((rows + 255) / 256), 256, 0, stream>>>(rows, tokens * active, source, inverse);
  const bool wide = aligned16(width * (bf16 ? 2 : 4), x, y);
  if (bf16 && wide)
    sum_as<__nv_bfloat16, 8>(tokens, active, width, x, inverse, y, stream);
  else if (bf16)
    sum_as<__nv_bfloat16, 1>(tokens, active, width, x, inverse, y, stream);
  else if (wide)
    sum_as<float, 4>(tokens, active, width, x, inverse, y, stream);
  else
    sum_as<float, 1>(tokens, active, width, x, inverse, y, stream);
  return cudaGetLastError();
}

}  // namespace kb::cuda
