#include "attention.h"

#include <limits>

#include "flash.h"
#include "shares.h"

namespace kb::cpu {

void check_borders(const char* op, const int32_t* cu, int64_t documents, int64_t tokens) {
  for (int64_t i = 0; i <= documents; ++i)
    if (cu[i] < (i ? cu[i - 1] : 0) || cu[i] > tokens)
      fail("[", op, "] border ", i, " of the documents must lie in [", i ? cu[i - 1] : 0, ", ", tokens, "] but is ",
           cu[i], "; cu must rise from 0 to the tokens in use");
}

QueryTiles query_tiles(const int32_t* cu, const int32_t* past, int64_t documents, int64_t heads, int64_t groups,
                       bool causal, int64_t width) {
  const int64_t each = heads / groups, together = std::min(each, kTileColumns), rows = kTileColumns / together;
  QueryTiles q;
  for (int64_t d = 0; d < documents; ++d) {
    const int64_t n = cu[d + 1] - cu[d], before = past ? past[d] : 0;
    for (int64_t h = 0; h < heads; h += std::min(together, each - h % each))
      for (int64_t i = 0; i < n; i += rows) {
        const QueryTile t{d, cu[d] + i, i, std::min(rows, n - i), h, std::min(together, each - h % each), h / each};
        q.tile.push_back(t);
        q.cost.push_back(double(causal ? before + i + t.tokens : n) * double(t.tokens * t.heads) * double(width));
      }
  }
  return q;
}

void Attention::supports(const Call& c, const Op&) { decline_bf16(c, "attention"); }

uint64_t Attention::workspace(const Call& c, const Op&) {
  const int64_t each = flash_scratch(c.dim(0, 2), c.dim(2, 2)) + (c.dim(0, 1) + 15) / 16 * 16;
  return uint64_t(each * c.threads()) * (c.in(0).dtype == KB_F64 ? 8 : 4);
}

void Attention::launch(const Call& c, const Op& op) {
  const int64_t h = c.dim(0, 1), d = c.dim(0, 2), g = c.dim(1, 1), e = c.dim(2, 2), documents = c.dim(3, 0) - 1;
  const int64_t rows = c.rows(c.in(0));
  const int32_t* cu = c.get<int32_t>(3);
  check_borders("attention", cu, documents, c.dim(0, 0));
  const QueryTiles tiles = query_tiles(cu, nullptr, documents, h, g, op.causal, d + e);
  const int64_t scratch = flash_scratch(d, e), peaks = (h + 15) / 16 * 16;
  floats(c.in(0).dtype, [&]<class T>() {
    const T *q = c.get<T>(0), *k = c.get<T>(1), *v = c.get<T>(2);
    T *o = c.put<T>(0), *lse = c.put<T>(1), *peak = c.put<T>(2);
    T* found = c.workspace<T>() + scratch * c.threads();  // [threads, peaks]
    std::fill_n(found, peaks * c.threads(), -std::numeric_limits<T>::infinity());
    share(c, tiles.cost, [&](int64_t first, int64_t last, int32_t thread) {
      for (int64_t u = first; u < last; ++u) {
        const QueryTile& t = tiles.tile[size_t(u)];
        const int64_t start = cu[t.document], length = cu[t.document + 1] - start;
        flash_forward<T>({.q = q + (t.token * h + t.head) * d,
                          .k = k + (start * g + t.group) * d,
                          .v = v + (start * g + t.group) * e,
                          .q_token = h * d,
                          .q_head = d,
                          .k_row = g * d,
                          .v_row = g * e,
                          .o = o ? o + (t.token * h + t.head) * e : nullptr,
                          .lse = lse ? lse + t.token * h + t.head : nullptr,
                          .o_token = h * e,
                          .o_head = e,
                          .lse_token = h,
                          .key_dim = d,
                          .value_dim = e,
                          .tokens = t.tokens,
                          .heads = t.heads,
                          .seen = op.causal ? t.index + 1 : length,
                          .step = op.causal,
                          .scale = op.scale},
                         c.workspace<T>() + scratch * thread, found + peaks * thread + t.head);
      }
    });
    const int64_t head = documents ? cu[0] : rows, tail = std::min<int64_t>(documents ? cu[documents] : rows, rows);
    if (o) std::fill(o, o + head * h * e, T(0)), std::fill(o + tail * h * e, o + rows * h * e, T(0));
    if (lse) std::fill(lse, lse + head * h, T(0)), std::fill(lse + tail * h, lse + rows * h, T(0));
    for (int64_t i = 0; peak && i < h; ++i) {
      peak[i] = found[i];
      for (int32_t t = 1; t < c.threads(); ++t) peak[i] = std::max(peak[i], found[peaks * t + i]);
    }
  });
}

}  // namespace kb::cpu
