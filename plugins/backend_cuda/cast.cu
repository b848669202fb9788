#include "cast_cuda.h"
#include "element.cuh"

namespace kb::cuda::element {
namespace {

constexpr int kThreads = 256;

// A thread reads and writes at most 16 bytes on the side of bf16, at least 16 on the other.
template <class From, class To, int kUnit>
__global__ void __launch_bounds__(kThreads) cast_floats(const From* x, To* y, int64_t n, bool vector) {
  const int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kUnit;
  if (vector && i + kUnit <= n) {
    float f[kUnit];
    load(x + i, f);
    store(y + i, f);
    return;
  }
  for (int64_t k = i; k < n && k < i + kUnit; ++k) y[k] = narrow<To>(widen(x[k]));
}

__device__ inline int64_t clamped(int64_t v, int64_t least, int64_t most) {
  return v < least ? least : v > most ? most : v;
}

// One element between any types: integers travel as int64_t, floats as float.
__global__ void cast_any(const void* x, uint32_t from, void* y, uint32_t to, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  int64_t whole = 0;
  float f = 0;
  const bool integer = from == KB_U8 || from == KB_I32 || from == KB_I64;
  if (from == KB_U8) whole = static_cast<const uint8_t*>(x)[i];
  if (from == KB_I32) whole = static_cast<const int32_t*>(x)[i];
  if (from == KB_I64) whole = static_cast<const int64_t*>(x)[i];
  if (!integer) {
    f = Floats{x, from}[i];
    if (f >= 0x1p63f)
      whole = INT64_MAX;
    else if (f <= -0x1p63f)
      whole = INT64_MIN;
    else
      whole = f != f ? 0 : int64_t(f);
  } else {
    f = float(whole);
  }
  if (to == KB_U8) static_cast<uint8_t*>(y)[i] = uint8_t(clamped(whole, 0, 255));
  if (to == KB_I32) static_cast<int32_t*>(y)[i] = int32_t(clamped(whole, INT32_MIN, INT32_MAX));
  if (to == KB_I64) static_cast<int64_t*>(y)[i] = whole;
  if (to == KB_F32 || to == KB_BF16) FloatsOut{y, to}.set(i, f);
}

template <class From, class To, int kUnit>
void run(const void* x, void* y, int64_t n, cudaStream_t s) {
  const bool vector = (reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) % 16 == 0;
  cast_floats<From, To, kUnit><<<unsigned((n + kThreads * kUnit - 1) / (kThreads * kUnit)), kThreads, 0, s>>>(
      static_cast<const From*>(x), static_cast<To*>(y), n, vector);
}

}  // namespace

void cast(const void* x, uint32_t from, void* y, uint32_t to, int64_t n, cudaStream_t s) {
  if (n == 0) return;
  if (from == KB_F32 && to == KB_BF16) return run<float, Bf16, 8>(x, y, n, s);
  if (from == KB_BF16 && to == KB_F32) return run<Bf16, float, 4>(x, y, n, s);
  cast_any<<<unsigned((n + kThreads - 1) / kThreads), kThreads, 0, s>>>(x, from, y, to, n);
}

}  // namespace kb::cuda::element
