// gemm.h: small matrix products on one thread, vectorised by Highway for the machine they run on: the tiles of
// attention, of the grouped products, of double precision and of products with few rows. A number depends on the
// operands alone.
#pragma once
#include <cstdint>

namespace kb::cpu {

template <class T>
struct Left {  // element (i, l) at at[i * row + l * col]: any transposition
  const T* at;
  int64_t row, col;
};

// c [m, n] = a [m, k] b [k, n], or += when add. b's rows are ldb apart, c's ldc; b is read in panels of two vectors, so
// keep it in the cache: k * n of a few ten thousand elements.
void multiply(int64_t m, int64_t n, int64_t k, Left<float> a, const float* b, int64_t ldb, float* c, int64_t ldc,
              bool add);
void multiply(int64_t m, int64_t n, int64_t k, Left<double> a, const double* b, int64_t ldb, double* c, int64_t ldc,
              bool add);

// c [m, n] = a b^T for m <= 4: dot products. a's rows (k contiguous) are lda apart, b's [n, k] are ldb apart.
void multiply_dots(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
                   int64_t ldc, bool add);
void multiply_dots(int64_t m, int64_t n, int64_t k, const double* a, int64_t lda, const double* b, int64_t ldb,
                   double* c, int64_t ldc, bool add);

// y [cols, rows] = scale * x^T for x [rows, cols]; columns of y past `rows` up to `padded` become zero.
void transpose(int64_t rows, int64_t cols, const float* x, int64_t ldx, float* y, int64_t ldy, float scale,
               int64_t padded);
void transpose(int64_t rows, int64_t cols, const double* x, int64_t ldx, double* y, int64_t ldy, double scale,
               int64_t padded);

// Any size, any transposition, blocked: rows [i0, i1) and columns [j0, j1) of c = op(a) op(b). a [m, k] or, ta, [k, m];
// b [k, n] or, tb, [n, k]; all dense. scratch: kBlockScratch elements, whose rows are a few cache lines longer than a
// block's so that they do not share cache sets.
inline constexpr int64_t kBlockDepth = 256, kBlockWidth = 128, kBlockRows = 128;
inline constexpr int64_t kBlockStride = kBlockWidth + 16, kBlockScratch = kBlockDepth * kBlockStride;
struct Product {
  int64_t m, n, k;
  bool ta, tb, add;
};
template <class T>
void multiply_blocked(const Product& p, const T* a, const T* b, T* c, int64_t i0, int64_t i1, int64_t j0, int64_t j1,
                      T* scratch);

}  // namespace kb::cpu
