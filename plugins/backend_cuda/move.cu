#include "move_cuda.h"

#include "element.cuh"

namespace kb::cuda::element {
namespace {

constexpr int kThreads = 256, kTile = 32;

template <class U>
__device__ inline U same_bits(uint32_t word) {  // 0, or all bits 1
  U u;
#pragma unroll
  for (unsigned i = 0; i < sizeof(U); ++i) reinterpret_cast<uint8_t*>(&u)[i] = uint8_t(word);
  return u;
}
template <>
__device__ inline uint4 same_bits<uint4>(uint32_t word) {
  return make_uint4(word, word, word, word);
}

__device__ inline int64_t thread_of_grid() { return int64_t(blockIdx.x) * kThreads + threadIdx.x; }

// i / d for i below 2^63: by 32 bits where they do.
__device__ inline int64_t over(int64_t i, int64_t d, const Divisor& by, bool large) {
  return large ? i / d : int64_t(by(uint32_t(i)));
}
struct Rows {  // an index as (row, place)
  int64_t total, width;
  Divisor by;
  bool large;
  Rows(int64_t rows, int64_t w) : total(rows * w), width(w), large(total >= int64_t(1) << 31) {
    if (!large && w) by = Divisor(uint32_t(w));
  }
  __device__ int64_t row(int64_t i) const { return over(i, width, by, large); }
};

template <class U>
__global__ void __launch_bounds__(kThreads) walk_kernel(const U* x, U* y, const __grid_constant__ Walk<1> w) {
  const int64_t i = thread_of_grid();
  if (i >= w.total) return;
  int64_t at[1];
  w.place(i, at);
  y[i] = x[at[0]];
}

template <class U>
__global__ void __launch_bounds__(kThreads) transpose_kernel(const U* x, U* y, Transposition t, int64_t tiles_a,
                                                             int64_t tiles_b, const __grid_constant__ Walk<2> batch) {
  __shared__ U tile[kTile][kTile + 1];
  int64_t block = blockIdx.x;
  const int64_t tb = block % tiles_b;
  block /= tiles_b;
  const int64_t ta = block % tiles_a, z = block / tiles_a;
  int64_t at[2];
  batch.place(z, at);
  const int64_t a0 = ta * kTile, b0 = tb * kTile;
  const int lane = threadIdx.x % kTile;
  for (int k = threadIdx.x / kTile; k < kTile; k += kThreads / kTile)
    if (b0 + k < t.b && a0 + lane < t.a) tile[k][lane] = x[at[0] + (b0 + k) * t.x_step + a0 + lane];
  __syncthreads();
  for (int k = threadIdx.x / kTile; k < kTile; k += kThreads / kTile)
    if (a0 + k < t.a && b0 + lane < t.b) y[at[1] + (a0 + k) * t.y_step + b0 + lane] = tile[lane][k];
}

// 2-byte units, two at a time on both sides: all sizes and steps are even.
__global__ void __launch_bounds__(kThreads)
    transpose_pairs(const uint16_t* x, uint16_t* y, Transposition t, int64_t tiles_a, int64_t tiles_b,
                    const __grid_constant__ Walk<2> batch) {
  constexpr int kSide = 64, kPad = kSide + 2;  // a row of 33 words: rows start in different banks
  __shared__ __align__(4) uint16_t tile[kSide * kPad];
  int64_t block = blockIdx.x;
  const int64_t tb = block % tiles_b;
  block /= tiles_b;
  const int64_t ta = block % tiles_a, z = block / tiles_a;
  int64_t at[2];
  batch.place(z, at);
  const int64_t a0 = ta * kSide, b0 = tb * kSide;
  const int pair = 2 * (threadIdx.x % 32);
#pragma unroll
  for (int i = 0; i < kSide * 32 / kThreads; ++i) {
    const int k = threadIdx.x / 32 + i * (kThreads / 32);
    if (b0 + k < t.b && a0 + pair < t.a)
      *reinterpret_cast<uint32_t*>(tile + k * kPad + pair) =
          *reinterpret_cast<const uint32_t*>(x + at[0] + (b0 + k) * t.x_step + a0 + pair);
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSide * 32 / kThreads; ++i) {
    const int k = threadIdx.x / 32 + i * (kThreads / 32);
    if (a0 + k < t.a && b0 + pair < t.b)
      *reinterpret_cast<uint32_t*>(y + at[1] + (a0 + k) * t.y_step + b0 + pair) =
          uint32_t(tile[pair * kPad + k]) | uint32_t(tile[(pair + 1) * kPad + k]) << 16;
  }
}
bool even(const Transposition& t, const Walk<2>& batch) {
  int64_t all = t.a | t.b | t.x_step | t.y_step | batch.inner_step[0] | batch.inner_step[1];
  for (int d = 0; d < batch.outer; ++d) all |= batch.step[0][d] | batch.step[1][d];
  return all % 2 == 0;
}

template <class U>
__global__ void __launch_bounds__(kThreads)
    blocks_kernel(Rows r, U* to, int64_t to_step, const U* from, int64_t from_step) {
  const int64_t i = thread_of_grid();
  if (i >= r.total) return;
  const int64_t row = r.row(i), k = i - row * r.width;
  to[row * to_step + k] = from[row * from_step + k];
}

template <class U>
__global__ void __launch_bounds__(kThreads) zeros_kernel(Rows r, int64_t begin, int64_t own, const U* x, U* y) {
  const int64_t i = thread_of_grid();
  if (i >= r.total) return;
  const int64_t row = r.row(i), k = i - row * r.width - begin;
  y[i] = k >= 0 && k < own ? x[row * own + k] : same_bits<U>(0);
}

template <class U>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(Rows r, const U* x, int64_t n, const int32_t* rows, const int32_t* in_use, U* y) {
  const int64_t i = thread_of_grid();
  if (i >= r.total) return;
  const int64_t row = r.row(i), k = i - row * r.width;
  if (in_use && row >= *in_use) return;
  const int32_t from = rows[row];
  y[i] = from >= 0 && from < n ? x[int64_t(from) * r.width + k] : same_bits<U>(from == -1 ? 0 : 0xffffffffu);
}

template <class U>
__global__ void __launch_bounds__(kThreads) take_kernel(Rows r, const U* x, int64_t width, const int32_t* ids, U* y) {
  const int64_t i = thread_of_grid();
  if (i >= r.total) return;
  const int32_t id = ids[i];
  y[i] = id >= 0 && id < width ? x[r.row(i) * width + id] : same_bits<U>(0xffffffffu);
}
template <class U>
__global__ void __launch_bounds__(kThreads) untake_kernel(Rows r, const U* x, const int32_t* ids, int64_t width, U* y) {
  const int64_t i = thread_of_grid();
  if (i >= r.total) return;
  const int32_t id = ids[i];
  if (id >= 0 && id < width) y[r.row(i) * width + id] = x[i];
}

template <class F>
void with_unit(int unit, F&& f) {
  switch (unit) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    case 8:
      return f.template operator()<uint64_t>();
    default:
      return f.template operator()<uint4>();
  }
}
unsigned blocks(int64_t n) { return unsigned((n + kThreads - 1) / kThreads); }

}  // namespace

void move_walk(int unit, const void* x, void* y, const Walk<1>& w, cudaStream_t s) {
  if (w.total == 0) return;
  with_unit(unit, [&]<class U>() {
    walk_kernel<<<blocks(w.total), kThreads, 0, s>>>(static_cast<const U*>(x), static_cast<U*>(y), w);
  });
}

void move_transposed(int unit, const void* x, void* y, const Transposition& t, const Walk<2>& batch, cudaStream_t s) {
  const bool pairs = unit == 2 && (uintptr_t(x) | uintptr_t(y)) % 4 == 0 && even(t, batch);
  const int64_t side = pairs ? 64 : kTile, ta = (t.a + side - 1) / side, tb = (t.b + side - 1) / side;
  if (batch.total * ta * tb == 0) return;
  if (pairs) {
    transpose_pairs<<<unsigned(batch.total * ta * tb), kThreads, 0, s>>>(static_cast<const uint16_t*>(x),
                                                                         static_cast<uint16_t*>(y), t, ta, tb, batch);
    return;
  }
  with_unit(unit, [&]<class U>() {
    if constexpr (sizeof(U) <= 8)
      transpose_kernel<<<unsigned(batch.total * ta * tb), kThreads, 0, s>>>(static_cast<const U*>(x),
                                                                            static_cast<U*>(y), t, ta, tb, batch);
  });
}

void move_blocks(int unit, int64_t outer, int64_t inner, void* to, int64_t to_step, const void* from, int64_t from_step,
                 cudaStream_t s) {
  const Rows r(outer, inner);
  if (r.total == 0) return;
  with_unit(unit, [&]<class U>() {
    blocks_kernel<<<blocks(r.total), kThreads, 0, s>>>(r, static_cast<U*>(to), to_step, static_cast<const U*>(from),
                                                       from_step);
  });
}

void move_into_zeros(int unit, int64_t outer, int64_t width, int64_t begin, int64_t own, const void* x, void* y,
                     cudaStream_t s) {
  const Rows r(outer, width);
  if (r.total == 0) return;
  with_unit(unit, [&]<class U>() {
    zeros_kernel<<<blocks(r.total), kThreads, 0, s>>>(r, begin, own, static_cast<const U*>(x), static_cast<U*>(y));
  });
}

void gather(int unit, const void* x, int64_t n, const int32_t* rows, int64_t m, const int32_t* in_use, int64_t width,
            void* y, cudaStream_t s) {
  const Rows r(m, width);
  if (r.total == 0) return;
  with_unit(unit, [&]<class U>() {
    gather_kernel<<<blocks(r.total), kThreads, 0, s>>>(r, static_cast<const U*>(x), n, rows, in_use,
                                                       static_cast<U*>(y));
  });
}

void take(int unit, const void* x, int64_t width, const int32_t* ids, int64_t n, int64_t k, void* y, cudaStream_t s) {
  const Rows r(n, k);
  if (r.total == 0) return;
  with_unit(unit, [&]<class U>() {
    take_kernel<<<blocks(r.total), kThreads, 0, s>>>(r, static_cast<const U*>(x), width, ids, static_cast<U*>(y));
  });
}

void untake(int unit, const void* x, const int32_t* ids, int64_t n, int64_t k, int64_t width, void* y, cudaStream_t s) {
  const Rows r(n, k);
  if (r.total == 0) return;
  with_unit(unit, [&]<class U>() {
    untake_kernel<<<blocks(r.total), kThreads, 0, s>>>(r, static_cast<const U*>(x), ids, width, static_cast<U*>(y));
  });
}

}  // namespace kb::cuda::element
