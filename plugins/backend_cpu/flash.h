// flash.h: softmax attention of a tile of queries over one run of keys, by key tiles with a running maximum. The
// forward of `attention` and `attention_cached` alike. Source: Dao et al. 2022 (FlashAttention); stored transposed, see
// softmax_tile.h.
#pragma once
#include "softmax_tile.h"

namespace kb::cpu {

template <class T>
struct FlashTile {
  const T *q, *k, *v;                     // of the first query; of the first key
  int64_t q_token, q_head, k_row, v_row;  // elements from one to the next
  T *o, *lse;                             // of the first query, or NULL
  int64_t o_token, o_head, lse_token;     // heads of lse are adjacent
  int64_t key_dim, value_dim;
  int64_t tokens, heads;  // tokens * heads <= kTileColumns queries share the keys
  int64_t seen, step;     // the first token sees `seen` >= 1 keys, each later one `step` more
  double scale;
};

inline int64_t flash_scratch(int64_t key_dim, int64_t value_dim) {  // elements
  return (key_dim + value_dim + kTileKeys + 3) * kTileColumns;
}
// peak [heads]: raised to the largest scaled logit of each head; may be NULL.
template <class T>
void flash_forward(const FlashTile<T>& f, T* scratch, T* peak);

}  // namespace kb::cpu
