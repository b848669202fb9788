// element.cuh: what the device code of the element kernels shares: bf16, 16-byte access, division by a constant, sums
// over a group of threads. All arithmetic is float.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "kitbash/abi.h"

namespace kb::cuda::element {

struct Bf16 {
  uint16_t bits;
};

__device__ inline float widen(float v) { return v; }
__device__ inline float widen(Bf16 v) { return __uint_as_float(uint32_t(v.bits) << 16); }
template <class T>
__device__ T narrow(float v);
template <>
__device__ inline float narrow<float>(float v) {
  return v;
}
template <>
__device__ inline Bf16 narrow<Bf16>(float v) {  // to nearest, ties to even
  Bf16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r.bits) : "f"(v));
  return r;
}
__device__ inline uint32_t narrow_pair(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}

// V elements from aligned memory, as floats. V = 1, 4, or a multiple of what 16 bytes hold.
template <int V>
__device__ inline void load(const float* p, float (&f)[V]) {
  if constexpr (V == 1) {
    f[0] = *p;
  } else {
#pragma unroll
    for (int i = 0; i < V; i += 4) {
      const float4 q = *reinterpret_cast<const float4*>(p + i);
      f[i] = q.x, f[i + 1] = q.y, f[i + 2] = q.z, f[i + 3] = q.w;
    }
  }
}
template <int V>
__device__ inline void load(const Bf16* p, float (&f)[V]) {
  if constexpr (V == 1) {
    f[0] = widen(*p);
  } else if constexpr (V == 4) {
    const uint2 q = *reinterpret_cast<const uint2*>(p);
    f[0] = __uint_as_float(q.x << 16), f[1] = __uint_as_float(q.x & 0xffff0000u);
    f[2] = __uint_as_float(q.y << 16), f[3] = __uint_as_float(q.y & 0xffff0000u);
  } else {
#pragma unroll
    for (int i = 0; i < V; i += 8) {
      const uint4 q = *reinterpret_cast<const uint4*>(p + i);
      const uint32_t w[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        f[i + 2 * k] = __uint_as_float(w[k] << 16);
        f[i + 2 * k + 1] = __uint_as_float(w[k] & 0xffff0000u);
      }
    }
  }
}
template <int V>
__device__ inline void store(float* p, const float (&f)[V]) {
  if constexpr (V == 1) {
    *p = f[0];
  } else {
#pragma unroll
    for (int i = 0; i < V; i += 4) *reinterpret_cast<float4*>(p + i) = make_float4(f[i], f[i + 1], f[i + 2], f[i + 3]);
  }
}
template <int V>
__device__ inline void store(Bf16* p, const float (&f)[V]) {
  if constexpr (V == 1) {
    *p = narrow<Bf16>(f[0]);
  } else if constexpr (V == 4) {
    *reinterpret_cast<uint2*>(p) = make_uint2(narrow_pair(f[0], f[1]), narrow_pair(f[2], f[3]));
  } else {
#pragma unroll
    for (int i = 0; i < V; i += 8)
      *reinterpret_cast<uint4*>(p + i) = make_uint4(narrow_pair(f[i], f[i + 1]), narrow_pair(f[i + 2], f[i + 3]),
                                                    narrow_pair(f[i + 4], f[i + 5]), narrow_pair(f[i + 6], f[i + 7]));
  }
}

// Integers stay integers.
template <int V>
__device__ inline void load(const int32_t* p, int32_t (&f)[V]) {
#pragma unroll
  for (int i = 0; i < V; ++i) f[i] = p[i];
}
template <int V>
__device__ inline void store(int32_t* p, const int32_t (&f)[V]) {
#pragma unroll
  for (int i = 0; i < V; ++i) p[i] = f[i];
}

// V neighbours as they lie in memory: half the registers of floats where they wait.
template <class T, int V>
struct Pack {
  static_assert(V * sizeof(T) == 16);
  uint4 q;
  __device__ void read(const T* p) { q = *reinterpret_cast<const uint4*>(p); }
  __device__ void clear() { q = make_uint4(0, 0, 0, 0); }
  __device__ void get(float (&f)[V]) const {
    const uint32_t w[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if constexpr (V == 8)
        f[2 * k] = __uint_as_float(w[k] << 16), f[2 * k + 1] = __uint_as_float(w[k] & 0xffff0000u);
      else
        f[k] = __uint_as_float(w[k]);
    }
  }
};
template <>
struct Pack<Bf16, 4> {
  uint2 q;
  __device__ void read(const Bf16* p) { q = *reinterpret_cast<const uint2*>(p); }
  __device__ void clear() { q = make_uint2(0, 0); }
  __device__ void get(float (&f)[4]) const {
    f[0] = __uint_as_float(q.x << 16), f[1] = __uint_as_float(q.x & 0xffff0000u);
    f[2] = __uint_as_float(q.y << 16), f[3] = __uint_as_float(q.y & 0xffff0000u);
  }
};
template <class T>
struct Pack<T, 1> {
  T v;
  __device__ void read(const T* p) { v = *p; }
  __device__ void clear() { v = narrow<T>(0); }
  __device__ void get(float (&f)[1]) const { f[0] = widen(v); }
};

// An element of a tensor that is f32 or bf16, told at run time: for small operands (weights, scalars).
struct Floats {
  const void* at;
  uint32_t dtype;
  __device__ float operator[](int64_t i) const {
    return dtype == KB_BF16 ? widen(static_cast<const Bf16*>(at)[i]) : static_cast<const float*>(at)[i];
  }
};
struct FloatsOut {
  void* at;
  uint32_t dtype;
  __device__ float get(int64_t i) const { return Floats{at, dtype}[i]; }
  __device__ void set(int64_t i, float v) const {
    if (dtype == KB_BF16)
      static_cast<Bf16*>(at)[i] = narrow<Bf16>(v);
    else
      static_cast<float*>(at)[i] = v;
  }
};

// Over `threads` neighbours of a warp (a power of two): every one gets the result. The order is fixed by lanes.
__device__ inline float warp_sum(float v, int threads = 32) {
  for (int o = threads >> 1; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  return v;
}
__device__ inline float warp_max(float v, int threads = 32) {
  for (int o = threads >> 1; o; o >>= 1) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
  return v;
}
// Two sums at a time, over a part of a warp, a warp, or (threads > 32) the block; `room`: 64 floats of shared memory.
__device__ inline void group_sums(float& a, float& b, int threads, float* room) {
  for (int o = (threads > 32 ? 32 : threads) >> 1; o; o >>= 1) {
    a += __shfl_xor_sync(0xffffffffu, a, o);
    b += __shfl_xor_sync(0xffffffffu, b, o);
  }
  if (threads <= 32) return;
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = a, room[32 + threadIdx.x / 32] = b;
  __syncthreads();
  const bool there = threadIdx.x % 32 < blockDim.x / 32;
  a = there ? room[threadIdx.x % 32] : 0.0f, b = there ? room[32 + threadIdx.x % 32] : 0.0f;
  for (int o = 16; o; o >>= 1) {
    a += __shfl_xor_sync(0xffffffffu, a, o);
    b += __shfl_xor_sync(0xffffffffu, b, o);
  }
  __syncthreads();
}
// Over the block, whose threads are a multiple of 32 and all take part; `room`: 32 floats of shared memory.
__device__ inline float block_sum(float v, float* room) {
  v = warp_sum(v);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = v;
  __syncthreads();
  v = warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? room[threadIdx.x % 32] : 0.0f);
  __syncthreads();
  return v;
}
__device__ inline float block_max(float v, float* room) {
  v = warp_max(v);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = v;
  __syncthreads();
  v = warp_max(threadIdx.x % 32 < blockDim.x / 32 ? room[threadIdx.x % 32] : -INFINITY);
  __syncthreads();
  return v;
}

}  // namespace kb::cuda::element
