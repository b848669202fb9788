#include "sources_cuda.h"

#include "element.cuh"

namespace kb::cuda::element {
namespace {

constexpr int kThreads = 256, kValues = 256;  // kValues: of one launch, as kernel arguments

__device__ inline int64_t thread_of_grid() { return int64_t(blockIdx.x) * kThreads + threadIdx.x; }
unsigned blocks(int64_t n) { return unsigned((n + kThreads - 1) / kThreads); }

__device__ inline void put_bits(void* y, int64_t i, uint64_t bits, int width) {
  if (width == 1) static_cast<uint8_t*>(y)[i] = uint8_t(bits);
  if (width == 2) static_cast<uint16_t*>(y)[i] = uint16_t(bits);
  if (width == 4) static_cast<uint32_t*>(y)[i] = uint32_t(bits);
  if (width == 8) static_cast<uint64_t*>(y)[i] = bits;
}

// `words`: 16 bytes of the repeated pattern; the elements that fill no 16 bytes come one by one.
__global__ void __launch_bounds__(kThreads) fill_kernel(uint4 words, uint64_t bits, int width, void* y, int64_t n) {
  const int64_t i = thread_of_grid(), each = 16 / width, whole = n / each;
  if (i < whole) static_cast<uint4*>(y)[i] = words;
  if (i < n - whole * each) put_bits(y, whole * each + i, bits, width);
}
__global__ void __launch_bounds__(kThreads) fill_unaligned(uint64_t bits, int width, void* y, int64_t n) {
  const int64_t i = thread_of_grid();
  if (i < n) put_bits(y, i, bits, width);
}

struct Values {
  uint64_t bits[kValues];
};
__global__ void __launch_bounds__(kValues)
    values_kernel(const __grid_constant__ Values v, int width, void* y, int64_t from, int n) {
  const int i = int(threadIdx.x);
  if (i < n) put_bits(y, from + i, v.bits[i], width);
}

__global__ void __launch_bounds__(kThreads) iota_kernel(int32_t* y, int64_t n) {
  const int64_t i = thread_of_grid();
  if (i < n) y[i] = int32_t(i);
}

// Philox4x32-10 (Salmon et al., SC 2011): element i draws from block i / 2 of key `seed`.
struct Pair {
  double a, b;
};
__device__ inline Pair uniform_pair(uint64_t seed, uint64_t block) {
  uint32_t c0 = uint32_t(block), c1 = uint32_t(block >> 32), c2 = 0, c3 = 0;
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t(0xD2511F53u) * c0, b = uint64_t(0xCD9E8D57u) * c2;
    c0 = uint32_t(b >> 32) ^ c1 ^ k0, c1 = uint32_t(b), c2 = uint32_t(a >> 32) ^ c3 ^ k1, c3 = uint32_t(a);
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  const auto unit = [](uint32_t low, uint32_t high) { return double((uint64_t(high) << 32 | low) >> 11) * 0x1p-53; };
  return {unit(c0, c1), unit(c2, c3)};
}
__device__ inline Pair normal_pair(uint64_t seed, uint64_t block) {
  const Pair u = uniform_pair(seed, block);
  const double r = sqrt(-2 * log1p(-u.a)), angle = 6.283185307179586476925 * u.b;
  return {r * cos(angle), r * sin(angle)};
}

// A double to f32 or bf16 with one rounding: to bf16 by way of a float that is rounded to odd.
__device__ inline void put(void* y, uint32_t dtype, int64_t i, double v) {
  float f = float(v);
  if (dtype == KB_F32) {
    static_cast<float*>(y)[i] = f;
    return;
  }
  const uint32_t bits = __float_as_uint(f);
  if (double(f) != v && fabsf(f) < INFINITY && !(bits & 1))
    f = __uint_as_float((fabs(v) > fabs(double(f))) ? bits + 1 : bits - 1);
  static_cast<Bf16*>(y)[i] = narrow<Bf16>(f);
}

__global__ void __launch_bounds__(kThreads)
    normal_kernel(uint64_t seed, double std, void* y, uint32_t dtype, int64_t n) {
  const int64_t block = thread_of_grid(), i = 2 * block;
  if (i >= n) return;
  const Pair p = normal_pair(seed, uint64_t(block));
  put(y, dtype, i, std * p.a);
  if (i + 1 < n) put(y, dtype, i + 1, std * p.b);
}

__device__ inline void put_uniform(void* y, uint32_t dtype, int64_t i, double lo, double hi, double u) {
  const double x = __dadd_rn(lo, __dmul_rn(hi - lo, u));
  if (dtype == KB_F32 && double(float(x)) >= hi && lo < hi)  // rounding must not reach hi, which is excluded
    static_cast<float*>(y)[i] = nextafterf(float(hi), float(lo));
  else
    put(y, dtype, i, x);
}
__global__ void __launch_bounds__(kThreads)
    uniform_kernel(uint64_t seed, double lo, double hi, void* y, uint32_t dtype, int64_t n) {
  const int64_t block = thread_of_grid(), i = 2 * block;
  if (i >= n) return;
  const Pair p = uniform_pair(seed, uint64_t(block));
  put_uniform(y, dtype, i, lo, hi, p.a);
  if (i + 1 < n) put_uniform(y, dtype, i + 1, lo, hi, p.b);
}

}  // namespace

void fill(Bits value, void* y, int64_t n, cudaStream_t s) {
  if (n == 0) return;
  if (uintptr_t(y) % 16) {
    fill_unaligned<<<blocks(n), kThreads, 0, s>>>(value.bits, value.width, y, n);
    return;
  }
  uint64_t all = value.bits;
  for (int w = value.width; w < 8; w *= 2) all = (all & ((uint64_t(1) << (8 * w)) - 1)) | all << (8 * w);
  const uint32_t low = uint32_t(all), high = uint32_t(all >> 32);
  const int64_t each = 16 / value.width, whole = n / each, rest = n - whole * each;
  fill_kernel<<<blocks(whole > rest ? whole : rest), kThreads, 0, s>>>(make_uint4(low, high, low, high), value.bits,
                                                                       value.width, y, n);
}
void write_values(const uint64_t* bits, int width, void* y, int64_t n, cudaStream_t s) {
  for (int64_t from = 0; from < n; from += kValues) {
    Values v{};
    const int m = int(n - from < kValues ? n - from : kValues);
    for (int i = 0; i < m; ++i) v.bits[i] = bits[from + i];
    values_kernel<<<1, kValues, 0, s>>>(v, width, y, from, m);
  }
}
void iota(int32_t* y, int64_t n, cudaStream_t s) {
  if (n) iota_kernel<<<blocks(n), kThreads, 0, s>>>(y, n);
}
void normal(uint64_t seed, double std, void* y, uint32_t dtype, int64_t n, cudaStream_t s) {
  if (n) normal_kernel<<<blocks((n + 1) / 2), kThreads, 0, s>>>(seed, std, y, dtype, n);
}
void uniform(uint64_t seed, double lo, double hi, void* y, uint32_t dtype, int64_t n, cudaStream_t s) {
  if (n) uniform_kernel<<<blocks((n + 1) / 2), kThreads, 0, s>>>(seed, lo, hi, y, dtype, n);
}

}  // namespace kb::cuda::element
