#include "flash.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "gemm.h"

namespace kb::cpu {
namespace {

// Up to four heads of one token: rows of dot products, since a column each would leave most lanes idle.
template <class T>
void forward_few(const FlashTile<T>& f, T* s, T* peak) {
  constexpr int64_t kRun = 8 * kTileKeys;  // keys at a time; s is [4, kRun]
  T top[4], sum[4];
  T* acc = s + 4 * kRun;  // [4, value_dim]
  const int64_t n = f.heads, e = f.value_dim;
  std::fill(top, top + n, -std::numeric_limits<T>::infinity());
  std::fill(sum, sum + n, T(0));
  std::fill(acc, acc + n * e, T(0));
  for (int64_t key = 0; key < f.seen; key += kRun) {
    const int64_t keys = std::min(kRun, f.seen - key);
    multiply_dots(n, keys, f.key_dim, f.q, f.q_head, f.k + key * f.k_row, f.k_row, s, kRun, false);
    for (int64_t r = 0; r < n; ++r) {
      T* x = s + r * kRun;
      for (int64_t j = 0; j < keys; ++j) x[j] *= T(f.scale);
      const T now = std::max(top[r], max_row(x, keys)), shrink = std::exp(top[r] - now);
      sum[r] = sum[r] * shrink + T(exp_row(x, keys, now, x));
      top[r] = now;
      for (int64_t j = 0; j < e; ++j) acc[r * e + j] *= shrink;
    }
    multiply(n, e, keys, Left<T>{s, kRun, 1}, f.v + key * f.v_row, f.v_row, acc, e, true);
  }
  for (int64_t r = 0; r < n; ++r) {
    if (f.o)
      for (int64_t j = 0; j < e; ++j) f.o[r * f.o_head + j] = acc[r * e + j] / sum[r];
    if (f.lse) f.lse[r] = top[r] + std::log(sum[r]);
    if (peak) peak[r] = std::max(peak[r], top[r]);
  }
}

}  // namespace

template <class T>
void flash_forward(const FlashTile<T>& f, T* scratch, T* peak) {
  if (f.tokens == 1 && f.heads <= 4) return forward_few(f, scratch, peak);
  constexpr int64_t W = kTileColumns;
  const int64_t d = f.key_dim, e = f.value_dim, columns = (f.tokens * f.heads + 15) / 16 * 16;
  T *qt = scratch, *ot = qt + d * W, *s = ot + e * W, *top = s + kTileKeys * W, *sum = top + W, *shrink = sum + W;
  // Columns are (token, head), heads fastest; those past the last hold zeros and are not read back.
  if (f.heads == 1) {
    transpose(f.tokens, d, f.q, f.q_token, qt, W, T(f.scale), columns);
  } else {
    for (int64_t i = 0; i < f.tokens; ++i)
      transpose(f.heads, d, f.q + i * f.q_token, f.q_head, qt + i * f.heads, W, T(f.scale),
                i + 1 < f.tokens ? f.heads : columns - i * f.heads);
  }
  std::fill(top, top + columns, -std::numeric_limits<T>::infinity());
  std::fill(sum, sum + columns, T(0));
  const int64_t last = f.seen + (f.tokens - 1) * f.step;
  for (int64_t key = 0; key < last; key += kTileKeys) {
    const int64_t keys = std::min(kTileKeys, last - key);
    multiply(keys, columns, d, Left<T>{f.k + key * f.k_row, f.k_row, 1}, qt, W, s, W, false);
    if (f.step)
      for (int64_t j = std::max<int64_t>(0, f.seen - key); j < keys; ++j) {
        const int64_t blind = std::min(f.tokens, key + j - f.seen + 1) * f.heads;  // queries before this key
        std::fill(s + j * W, s + j * W + blind, -std::numeric_limits<T>::infinity());
      }
    softmax_tile(s, keys, columns, top, sum, shrink);
    if (!f.o) continue;
    if (key) scale_columns(ot, e, columns, shrink);
    multiply(e, columns, keys, Left<T>{f.v + key * f.v_row, 1, f.v_row}, s, W, ot, W, key > 0);
  }
  if (f.o) {
    for (int64_t c = 0; c < columns; ++c) shrink[c] = T(1) / sum[c];
    scale_columns(ot, e, columns, shrink);
    if (f.heads == 1) {
      transpose(e, f.tokens, ot, W, f.o, f.o_token, T(1), e);
    } else {
      for (int64_t i = 0; i < f.tokens; ++i)
        transpose(e, f.heads, ot + i * f.heads, W, f.o + i * f.o_token, f.o_head, T(1), e);
    }
  }
  for (int64_t i = 0; i < f.tokens; ++i)
    for (int64_t h = 0; h < f.heads; ++h) {
      const int64_t c = i * f.heads + h;
      if (f.lse) f.lse[i * f.lse_token + h] = top[c] + std::log(sum[c]);
      if (peak) peak[h] = std::max(peak[h], top[c]);
    }
}
template void flash_forward(const FlashTile<float>&, float*, float*);
template void flash_forward(const FlashTile<double>&, double*, double*);

}  // namespace kb::cpu
