#include "cached_attention.h"

#include <cstring>

#include "attention.h"
#include "flash.h"
#include "shares.h"

namespace kb::cpu {
namespace {

struct Sequences {
  const int32_t *cu, *past, *slot;  // slot may be NULL
  int64_t documents;
  int64_t row(int64_t d) const { return slot ? slot[d] : d; }
};

// Documents with rows, checked against the cache's size; `at`: the input that holds cu, then past, then slot.
Sequences sequences(const Call& c, const char* op, uint32_t at, int64_t tokens, int64_t slots, int64_t capacity) {
  const Sequences s{c.get<int32_t>(at), c.get<int32_t>(at + 1), c.get<int32_t>(at + 2), c.dim(at, 0) - 1};
  check_borders(op, s.cu, s.documents, tokens);
  for (int64_t d = 0; d < s.documents; ++d) {
    const int64_t n = s.cu[d + 1] - s.cu[d];
    if (!n) continue;
    if (s.past[d] < 0 || s.past[d] + n > capacity)
      fail("[", op, "] document ", d, " must fit its cache of ", capacity, " tokens but has length ", s.past[d] + n,
           " (", s.past[d], " before, ", n, " new); open the model with a larger capacity");
    if (s.row(d) < 0 || s.row(d) >= slots)
      fail("[", op, "] the slot of document ", d, " must lie in [0, ", slots, ") but is ", s.row(d));
  }
  return s;
}

}  // namespace

void AttentionCached::supports(const Call& c, const Op&) { decline_bf16(c, "attention_cached"); }

uint64_t AttentionCached::workspace(const Call& c, const Op&) {
  return uint64_t(flash_scratch(c.dim(0, 2), c.dim(2, 3)) * c.threads()) * (c.in(0).dtype == KB_F64 ? 8 : 4);
}

void AttentionCached::launch(const Call& c, const Op& op) {
  if (!c.wanted(0)) return;
  const int64_t h = c.dim(0, 1), d = c.dim(0, 2), capacity = c.dim(1, 1), g = c.dim(1, 2), e = c.dim(2, 3);
  const int64_t rows = c.rows(c.in(0)), scratch = flash_scratch(d, e);
  const Sequences s = sequences(c, "attention_cached", 3, c.dim(0, 0), c.dim(1, 0), capacity);
  const QueryTiles tiles = query_tiles(s.cu, s.past, s.documents, h, g, true, d + e);
  floats(c.in(0).dtype, [&]<class T>() {
    const T *q = c.get<T>(0), *k = c.get<T>(1), *v = c.get<T>(2);
    T* o = c.put<T>(0);
    share(c, tiles.cost, [&](int64_t first, int64_t last, int32_t thread) {
      for (int64_t u = first; u < last; ++u) {
        const QueryTile& t = tiles.tile[size_t(u)];
        const int64_t row = s.row(t.document) * capacity * g + t.group;
        flash_forward<T>({.q = q + (t.token * h + t.head) * d,
                          .k = k + row * d,
                          .v = v + row * e,
                          .q_token = h * d,
                          .q_head = d,
                          .k_row = g * d,
                          .v_row = g * e,
                          .o = o + (t.token * h + t.head) * e,
                          .lse = nullptr,
                          .o_token = h * e,
                          .o_head = e,
                          .lse_token = 0,
                          .key_dim = d,
                          .value_dim = e,
                          .tokens = t.tokens,
                          .heads = t.heads,
                          .seen = s.past[t.document] + t.index + 1,
                          .step = 1,
                          .scale = op.scale},
                         c.workspace<T>() + scratch * thread, nullptr);
      }
    });
    const int64_t head = s.documents ? s.cu[0] : rows,
                  tail = std::min<int64_t>(s.documents ? s.cu[s.documents] : rows, rows);
    std::fill(o, o + head * h * e, T(0));
    std::fill(o + tail * h * e, o + rows * h * e, T(0));
  });
}

void CacheAppend::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  const kb_type &cache = c.in(0), &x = c.in(1);
  if (cache.dtype != x.dtype)
    fail("[cache_append] rows must have the cache's type ", dtype_name(cache.dtype), " but are ", dtype_name(x.dtype),
         "; cast them first");
  int64_t width = cache.dtype == KB_U8                             ? 1
                  : cache.dtype == KB_BF16                         ? 2
                  : cache.dtype == KB_F64 || cache.dtype == KB_I64 ? 8
                                                                   : 4;
  for (int i = 2; i < cache.rank; ++i) width *= cache.shape[i];
  const int64_t capacity = cache.shape[1];
  const Sequences s = sequences(c, "cache_append", 2, x.shape[0], cache.shape[0], capacity);
  const char* from = c.get<char>(1);
  char* to = c.put<char>(0);
  for (int64_t d = 0; d < s.documents; ++d)
    if (const int64_t n = s.cu[d + 1] - s.cu[d])
      std::memcpy(to + (s.row(d) * capacity + s.past[d]) * width, from + s.cu[d] * width, size_t(n * width));
}

}  // namespace kb::cpu
