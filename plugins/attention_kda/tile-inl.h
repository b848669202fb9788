// tile-inl.h: the small dense algebra of a chunk, on matrices whose rows are padded to a multiple of sixteen elements.
// Compiled once for each instruction set (Highway).
#if defined(KITBASH_KDA_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KITBASH_KDA_TILE_INL_H_
#undef KITBASH_KDA_TILE_INL_H_
#else
#define KITBASH_KDA_TILE_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace kda {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kChunk = 16;  // tokens a chunk, and the unit of padding
constexpr int64_t padded(int64_t n) { return (n + 15) / 16 * 16; }

template <class T>
using Tag = hn::CappedTag<T, 16>;
template <class T>
constexpr int64_t lanes() {
  return int64_t(hn::MaxLanes(Tag<T>()));
}
template <class T>
using Vec = hn::Vec<Tag<T>>;

// The first `n` elements at p, zeros behind them; nothing past them is read.
template <class T>
HWY_INLINE Vec<T> load_part(const T* p, int64_t n) {
  constexpr int64_t N = lanes<T>();
  const Tag<T> d;
  if (HWY_LIKELY(n >= N)) return hn::LoadU(d, p);
  HWY_ALIGN T x[N] = {};
  for (int64_t i = 0; i < n; ++i) x[i] = p[i];
  return hn::Load(d, x);
}
template <class T>
HWY_INLINE void store_part(Vec<T> v, T* p, int64_t n) {
  constexpr int64_t N = lanes<T>();
  const Tag<T> d;
  if (HWY_LIKELY(n >= N)) return hn::StoreU(v, d, p);
  HWY_ALIGN T x[N];
  hn::Store(v, d, x);
  for (int64_t i = 0; i < n; ++i) p[i] = x[i];
}
// A matrix [rows, cols] into one whose rows are `to_width` wide; rows past `rows` and columns past `cols` become zero.
template <class T>
void copy_in(const T* from, int64_t stride, int64_t rows, int64_t cols, T* to, int64_t to_rows, int64_t to_width) {
  const Tag<T> d;
  for (int64_t r = 0; r < to_rows; ++r)
    for (int64_t c = 0; c < to_width; c += lanes<T>())
      hn::StoreU(r < rows ? load_part(from + r * stride + c, cols - c) : hn::Zero(d), d, to + r * to_width + c);
}
template <class T>
void copy_out(const T* from, int64_t from_width, T* to, int64_t stride, int64_t rows, int64_t cols) {
  const Tag<T> d;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; c += lanes<T>())
      store_part(hn::LoadU(d, from + r * from_width + c), to + r * stride + c, cols - c);
}

// out[c, r] = in[r, c] for 16 rows and `lanes` columns, out being [lanes, 16] without gaps. Two rounds of four-way
// interleaving: rows r, r + 4, r + 8, r + 12 first, then those four.
template <class T>
HWY_INLINE void transpose_block(const T* in, int64_t stride, T* out) {
  constexpr int64_t N = lanes<T>();
  const Tag<T> d;
  HWY_ALIGN T half[4][4 * N];
  for (int64_t r = 0; r < 4; ++r)
    hn::StoreInterleaved4(hn::LoadU(d, in + r * stride), hn::LoadU(d, in + (r + 4) * stride),
                          hn::LoadU(d, in + (r + 8) * stride), hn::LoadU(d, in + (r + 12) * stride), d, half[r]);
  for (int64_t c = 0; c < 4; ++c)
    hn::StoreInterleaved4(hn::Load(d, half[0] + c * N), hn::Load(d, half[1] + c * N), hn::Load(d, half[2] + c * N),
                          hn::Load(d, half[3] + c * N), d, out + c * 4 * N);
}
// in [16, cols] -> out [cols, 16]; cols is a multiple of sixteen.
template <class T>
void transpose(const T* in, int64_t stride, int64_t cols, T* out) {
  for (int64_t c = 0; c < cols; c += lanes<T>()) transpose_block(in + c, stride, out + c * 16);
}

// ---- C = start + A B, or start - A B, in register tiles
enum class Start { kZero, kSelf, kScaledSelf };  // kScaledSelf: row r of C times scale[r]

template <int MR, int NV, Start S, bool Minus, class T>
HWY_INLINE void product_tile(int64_t depth, const T* HWY_RESTRICT A, int64_t row, int64_t step, const T* HWY_RESTRICT B,
                             int64_t b_width, T* HWY_RESTRICT C, int64_t c_width, const T* HWY_RESTRICT scale) {
  constexpr int64_t N = lanes<T>();
  const Tag<T> d;
  Vec<T> acc[MR][NV];
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r)
#pragma GCC unroll 4
    for (int n = 0; n < NV; ++n) {
      if constexpr (S == Start::kZero)
        acc[r][n] = hn::Zero(d);
      else
        acc[r][n] = hn::LoadU(d, C + r * c_width + n * N);
      if constexpr (S == Start::kScaledSelf) acc[r][n] = hn::Mul(acc[r][n], hn::Set(d, scale[r]));
    }
  for (int64_t k = 0; k < depth; ++k) {
    Vec<T> b[NV];
#pragma GCC unroll 4
    for (int n = 0; n < NV; ++n) b[n] = hn::LoadU(d, B + k * b_width + n * N);
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) {
      const Vec<T> a = hn::Set(d, A[r * row + k * step]);
#pragma GCC unroll 4
      for (int n = 0; n < NV; ++n)
        if constexpr (Minus)
          acc[r][n] = hn::NegMulAdd(a, b[n], acc[r][n]);
        else
          acc[r][n] = hn::MulAdd(a, b[n], acc[r][n]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r)
#pragma GCC unroll 4
    for (int n = 0; n < NV; ++n) hn::StoreU(acc[r][n], d, C + r * c_width + n * N);
}

// C [M, width] from A [M, depth], A[r, k] at A[r * row + k * step], and B [depth, width]. M and width are multiples of
// sixteen.
template <Start S, bool Minus = false, class T>
void product(int64_t M, int64_t width, int64_t depth, const T* A, int64_t row, int64_t step, const T* B,
             int64_t b_width, T* C, int64_t c_width, const T* scale = nullptr) {
  constexpr int64_t N = lanes<T>();
  constexpr bool many = HWY_TARGET == HWY_AVX3;  // 32 registers
  constexpr int MR = many ? 8 : 4;
  int64_t n = 0;
  for (; n + 2 * N <= width; n += 2 * N)
    for (int64_t r = 0; r < M; r += MR)
      product_tile<MR, 2, S, Minus>(depth, A + r * row, row, step, B + n, b_width, C + r * c_width + n, c_width,
                                    scale + (scale ? r : 0));
  constexpr int MR1 = many ? 16 : 8;
  for (; n < width; n += N)
    for (int64_t r = 0; r < M; r += MR1)
      product_tile<MR1, 1, S, Minus>(depth, A + r * row, row, step, B + n, b_width, C + r * c_width + n, c_width,
                                     scale + (scale ? r : 0));
}

}  // namespace HWY_NAMESPACE
}  // namespace kda
HWY_AFTER_NAMESPACE();
#endif
