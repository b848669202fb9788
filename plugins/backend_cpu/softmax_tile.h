// softmax_tile.h: the vector loops of attention and of the loss. A tile is [keys, columns], a column is a query, so
// that its maximum and sum run down the rows and no lane meets another. T is float or double.
#pragma once
#include <cstdint>

namespace kb::cpu {

inline constexpr int64_t kTileColumns = 64, kTileKeys = 64;  // s and a row of outputs stay in the L1 cache

// s [keys, kTileColumns] logits -> exp(s - peak); peak, sum [columns] go on from the tiles before; shrink [columns] is
// what older sums must be multiplied by. columns: a multiple of 16.
template <class T>
void softmax_tile(T* s, int64_t keys, int64_t columns, T* peak, T* sum, T* shrink);

// x [rows, kTileColumns] *= by [columns], row by row.
template <class T>
void scale_columns(T* x, int64_t rows, int64_t columns, const T* by);

// s -> p = exp(s - lse), dp -> scale * p (dp - delta); lse, delta [columns].
template <class T>
void softmax_tile_backward(T* s, T* dp, int64_t keys, int64_t columns, const T* lse, const T* delta, T scale);

template <class T>
T dot_row(const T* a, const T* b, int64_t n);
template <class T>
T max_row(const T* x, int64_t n);  // -inf when empty
// Sum of exp(x - peak) in double; y (or NULL; may be x) receives the exponentials.
template <class T>
double exp_row(const T* x, int64_t n, T peak, T* y);
// y = scale * exp(x - lse)
template <class T>
void scaled_exp_row(const T* x, int64_t n, T lse, T scale, T* y);

}  // namespace kb::cpu
