#include "gemm.h"

#include <algorithm>
#include <cstring>

#include "lanes_setup.h"
#define HWY_TARGET_INCLUDE "gemm.cpp"
#include "hwy/foreach_target.h"

#include "hwy/highway.h"
#include "lanes_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kb::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of a register tile two vectors wide: as many as the register file holds beside b's two vectors and a's element.
#if HWY_TARGET <= HWY_AVX3
constexpr int kRows = 8;
#elif HWY_TARGET <= HWY_AVX2
constexpr int kRows = 6;
#else
constexpr int kRows = 4;
#endif

// c [R, n] (n in (0, V vectors]) of one panel of b. Part: the last vector has `rest` lanes.
template <int R, int V, bool Part, class D, class T = hn::TFromD<D>>
HWY_INLINE void tile(D d, int64_t k, Left<T> a, const T* HWY_RESTRICT b, int64_t ldb, T* HWY_RESTRICT c, int64_t ldc,
                     bool add, size_t rest) {
  const int64_t lanes = int64_t(hn::Lanes(d));
  hn::Vec<D> sum[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) sum[r][v] = hn::Zero(d);
  const T* HWY_RESTRICT at = a.at;
  for (int64_t l = 0; l < k; ++l, at += a.col, b += ldb) {
    hn::Vec<D> w[V];
    for (int v = 0; v < V; ++v)
      w[v] = Part && v == V - 1 ? load_part(d, b + v * lanes, rest) : hn::LoadU(d, b + v * lanes);
    for (int r = 0; r < R; ++r) {
      const auto x = hn::Set(d, at[r * a.row]);
      for (int v = 0; v < V; ++v) sum[r][v] = hn::MulAdd(x, w[v], sum[r][v]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) {
      T* y = c + r * ldc + v * lanes;
      if (Part && v == V - 1) {
        store_part(add ? hn::Add(load_part(d, y, rest), sum[r][v]) : sum[r][v], d, y, rest);
      } else {
        hn::StoreU(add ? hn::Add(hn::LoadU(d, y), sum[r][v]) : sum[r][v], d, y);
      }
    }
}

template <int R, int V, bool Part, class D, class T>
HWY_NOINLINE void panel(D d, int64_t m, int64_t k, Left<T> a, const T* b, int64_t ldb, T* c, int64_t ldc, bool add,
                        size_t rest) {
  if constexpr (R == kRows)
    for (; m >= R; m -= R, a.at += R * a.row, c += R * ldc) tile<R, V, Part>(d, k, a, b, ldb, c, ldc, add, rest);
  if (m == R) return tile<R, V, Part>(d, k, a, b, ldb, c, ldc, add, rest);
  if constexpr (R > 1)
    if (m > 0) panel<R - 1, V, Part>(d, m, k, a, b, ldb, c, ldc, add, rest);
}

template <class T>
void multiply_any(int64_t m, int64_t n, int64_t k, Left<T> a, const T* b, int64_t ldb, T* c, int64_t ldc, bool add) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (; n >= 2 * lanes; n -= 2 * lanes, b += 2 * lanes, c += 2 * lanes)
    panel<kRows, 2, false>(d, m, k, a, b, ldb, c, ldc, add, 0);
  if (n > lanes) {
    panel<kRows, 2, true>(d, m, k, a, b, ldb, c, ldc, add, size_t(n - lanes));
  } else if (n == lanes) {
    panel<kRows, 1, false>(d, m, k, a, b, ldb, c, ldc, add, 0);
  } else if (n > 0) {
    panel<kRows, 1, true>(d, m, k, a, b, ldb, c, ldc, add, size_t(n));
  }
}

// R rows of a against W rows of b at once, so that each load serves several products.
template <int R, int W, class D, class T = hn::TFromD<D>>
HWY_INLINE void dots(D d, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb, T* c, int64_t ldc, bool add) {
  const int64_t lanes = int64_t(hn::Lanes(d));
  hn::Vec<D> sum[R][W];
  for (int r = 0; r < R; ++r)
    for (int w = 0; w < W; ++w) sum[r][w] = hn::Zero(d);
  int64_t l = 0;
  for (; l + lanes <= k; l += lanes) {
    hn::Vec<D> y[W];
    for (int w = 0; w < W; ++w) y[w] = hn::LoadU(d, b + w * ldb + l);
    for (int r = 0; r < R; ++r) {
      const auto x = hn::LoadU(d, a + r * lda + l);
      for (int w = 0; w < W; ++w) sum[r][w] = hn::MulAdd(x, y[w], sum[r][w]);
    }
  }
  if (l < k)
    for (int r = 0; r < R; ++r)
      for (int w = 0; w < W; ++w)
        sum[r][w] = hn::MulAdd(load_part(d, a + r * lda + l, size_t(k - l)),
                               load_part(d, b + w * ldb + l, size_t(k - l)), sum[r][w]);
  for (int r = 0; r < R; ++r)
    for (int w = 0; w < W; ++w) {
      const T s = hn::GetLane(hn::SumOfLanes(d, sum[r][w]));
      c[r * ldc + w] = add ? c[r * ldc + w] + s : s;
    }
}
template <int R, class T>
void dots_rows(int64_t n, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb, T* c, int64_t ldc, bool add) {
  const hn::ScalableTag<T> d;
  int64_t j = 0;
  for (; j + 4 <= n; j += 4) dots<R, 4>(d, k, a, lda, b + j * ldb, ldb, c + j, ldc, add);
  for (; j < n; ++j) dots<R, 1>(d, k, a, lda, b + j * ldb, ldb, c + j, ldc, add);
}
template <class T>
void dots_any(int64_t m, int64_t n, int64_t k, const T* a, int64_t lda, const T* b, int64_t ldb, T* c, int64_t ldc,
              bool add) {
  for (; m >= 4; m -= 4, a += 4 * lda, c += 4 * ldc) dots_rows<4>(n, k, a, lda, b, ldb, c, ldc, add);
  if (m == 3) return dots_rows<3>(n, k, a, lda, b, ldb, c, ldc, add);
  if (m == 2) return dots_rows<2>(n, k, a, lda, b, ldb, c, ldc, add);
  if (m == 1) return dots_rows<1>(n, k, a, lda, b, ldb, c, ldc, add);
}

// Squares of 4 x 4 keep both sides' cache lines in use; gathers are no faster.
template <class T>
void transpose_any(int64_t rows, int64_t cols, const T* HWY_RESTRICT x, int64_t ldx, T* HWY_RESTRICT y, int64_t ldy,
                   T scale, int64_t padded) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    const T *a = x + i * ldx, *b = a + ldx, *c = b + ldx, *e = c + ldx;
    for (int64_t j = 0; j < cols; ++j) {
      T* z = y + j * ldy + i;
      z[0] = scale * a[j], z[1] = scale * b[j], z[2] = scale * c[j], z[3] = scale * e[j];
    }
  }
  for (; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) y[j * ldy + i] = scale * x[i * ldx + j];
  if (padded > rows)
    for (int64_t j = 0; j < cols; ++j) std::memset(y + j * ldy + rows, 0, size_t(padded - rows) * sizeof(T));
}

void multiply_f32(int64_t m, int64_t n, int64_t k, Left<float> a, const float* b, int64_t ldb, float* c, int64_t ldc,
                  bool add) {
  multiply_any(m, n, k, a, b, ldb, c, ldc, add);
}
void multiply_f64(int64_t m, int64_t n, int64_t k, Left<double> a, const double* b, int64_t ldb, double* c, int64_t ldc,
                  bool add) {
  multiply_any(m, n, k, a, b, ldb, c, ldc, add);
}
void dots_f32(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
              int64_t ldc, bool add) {
  dots_any(m, n, k, a, lda, b, ldb, c, ldc, add);
}
void dots_f64(int64_t m, int64_t n, int64_t k, const double* a, int64_t lda, const double* b, int64_t ldb, double* c,
              int64_t ldc, bool add) {
  dots_any(m, n, k, a, lda, b, ldb, c, ldc, add);
}
void transpose_f32(int64_t rows, int64_t cols, const float* x, int64_t ldx, float* y, int64_t ldy, float s,
                   int64_t padded) {
  transpose_any(rows, cols, x, ldx, y, ldy, s, padded);
}
void transpose_f64(int64_t rows, int64_t cols, const double* x, int64_t ldx, double* y, int64_t ldy, double s,
                   int64_t padded) {
  transpose_any(rows, cols, x, ldx, y, ldy, s, padded);
}

}  // namespace kb::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kb::cpu {
HWY_EXPORT(multiply_f32);
HWY_EXPORT(multiply_f64);
HWY_EXPORT(dots_f32);
HWY_EXPORT(dots_f64);
HWY_EXPORT(transpose_f32);
HWY_EXPORT(transpose_f64);

void multiply(int64_t m, int64_t n, int64_t k, Left<float> a, const float* b, int64_t ldb, float* c, int64_t ldc,
              bool add) {
  HWY_DYNAMIC_DISPATCH(multiply_f32)(m, n, k, a, b, ldb, c, ldc, add);
}
void multiply(int64_t m, int64_t n, int64_t k, Left<double> a, const double* b, int64_t ldb, double* c, int64_t ldc,
              bool add) {
  HWY_DYNAMIC_DISPATCH(multiply_f64)(m, n, k, a, b, ldb, c, ldc, add);
}
void multiply_dots(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
                   int64_t ldc, bool add) {
  HWY_DYNAMIC_DISPATCH(dots_f32)(m, n, k, a, lda, b, ldb, c, ldc, add);
}
void multiply_dots(int64_t m, int64_t n, int64_t k, const double* a, int64_t lda, const double* b, int64_t ldb,
                   double* c, int64_t ldc, bool add) {
  HWY_DYNAMIC_DISPATCH(dots_f64)(m, n, k, a, lda, b, ldb, c, ldc, add);
}
void transpose(int64_t rows, int64_t cols, const float* x, int64_t ldx, float* y, int64_t ldy, float s,
               int64_t padded) {
  HWY_DYNAMIC_DISPATCH(transpose_f32)(rows, cols, x, ldx, y, ldy, s, padded);
}
void transpose(int64_t rows, int64_t cols, const double* x, int64_t ldx, double* y, int64_t ldy, double s,
               int64_t padded) {
  HWY_DYNAMIC_DISPATCH(transpose_f64)(rows, cols, x, ldx, y, ldy, s, padded);
}

template <class T>
void multiply_blocked(const Product& p, const T* a, const T* b, T* c, int64_t i0, int64_t i1, int64_t j0, int64_t j1,
                      T* scratch) {
  const Left<T> left{a, p.ta ? 1 : p.k, p.ta ? p.m : 1};
  if (p.k == 0 && !p.add)
    for (int64_t i = i0; i < i1; ++i) std::fill(c + i * p.n + j0, c + i * p.n + j1, T(0));
  for (int64_t j = j0; j < j1; j += kBlockWidth) {
    const int64_t width = std::min(kBlockWidth, j1 - j);
    for (int64_t l = 0; l < p.k; l += kBlockDepth) {
      const int64_t depth = std::min(kBlockDepth, p.k - l);
      // b's block is made contiguous: rows a power of two apart would share a few cache sets.
      if (p.tb) {
        transpose(width, depth, b + j * p.k + l, p.k, scratch, kBlockStride, T(1), width);
      } else {
        for (int64_t x = 0; x < depth; ++x)
          std::memcpy(scratch + x * kBlockStride, b + (l + x) * p.n + j, size_t(width) * sizeof(T));
      }
      multiply(i1 - i0, width, depth, {left.at + i0 * left.row + l * left.col, left.row, left.col}, scratch,
               kBlockStride, c + i0 * p.n + j, p.n, p.add || l > 0);
    }
  }
}
template void multiply_blocked(const Product&, const float*, const float*, float*, int64_t, int64_t, int64_t, int64_t,
                               float*);
template void multiply_blocked(const Product&, const double*, const double*, double*, int64_t, int64_t, int64_t,
                               int64_t, double*);

}  // namespace kb::cpu
#endif  // HWY_ONCE
