#include "attention.h"
#include "gemm.h"
#include "shares.h"
#include "softmax_tile.h"

// P and dS are made again from lse, tile by tile, transposed as in softmax_tile.h. With enough (document, key head)
// pairs for the team one pass does all (5 products a tile); else dq goes by query tiles and dk, dv by key tiles (7). No
// sum is shared between threads, so no atomics and no order that varies.
namespace kb::cpu {
namespace {

constexpr int64_t W = kTileColumns;
constexpr int64_t kKeyRun =
    4 * kTileKeys;  // keys of a unit of the second pass: queries are transposed once for all of them

int64_t scratch_elements(int64_t d, int64_t e) { return (2 * d + e + 2 * kTileKeys + 2) * W; }

template <class T>
struct Head {  // one query head of one document: pointers to its first row, rows `_row` elements apart
  const T *q, *k, *v, *o, *g, *lse;
  T *dq, *dk, *dv;  // NULL: not wanted
  int64_t q_row, k_row, v_row, o_row, lse_row, d, e, length;
  bool causal;
  double scale;
  T *qt, *gt, *dqt, *s, *dp, *lse_of, *delta;

  void scratch(T* at) {
    qt = at, gt = qt + d * W, dqt = gt + e * W, s = dqt + d * W, dp = s + kTileKeys * W, lse_of = dp + kTileKeys * W;
    delta = lse_of + W;
  }

  // Queries [i0, i0 + n) against keys [from, to).
  void queries(int64_t i0, int64_t from, int64_t to, bool want_q, bool want_kv) {
    const int64_t n = std::min(W, length - i0), columns = (n + 15) / 16 * 16;
    if (causal) to = std::min(to, i0 + n);
    transpose(n, d, q + i0 * q_row, q_row, qt, W, T(scale), columns);
    transpose(n, e, g + i0 * o_row, o_row, gt, W, T(1), columns);
    for (int64_t i = 0; i < n; ++i) {
      lse_of[i] = lse[(i0 + i) * lse_row];
      delta[i] = dot_row(o + (i0 + i) * o_row, g + (i0 + i) * o_row, e);
    }
    std::fill(lse_of + n, lse_of + columns, T(0));
    std::fill(delta + n, delta + columns, T(0));
    for (int64_t j = from; j < to; j += kTileKeys) {
      const int64_t keys = std::min(kTileKeys, to - j);
      multiply(keys, columns, d, Left<T>{k + j * k_row, k_row, 1}, qt, W, s, W, false);
      if (causal)
        for (int64_t x = std::max<int64_t>(0, i0 + 1 - j); x < keys; ++x)
          std::fill(s + x * W, s + x * W + std::min(n, j + x - i0), -std::numeric_limits<T>::infinity());
      multiply(keys, columns, e, Left<T>{v + j * v_row, v_row, 1}, gt, W, dp, W, false);
      softmax_tile_backward(s, dp, keys, columns, lse_of, delta, T(scale));
      // A query with one key has the weight 1 whatever its logit; rounding would leave a gradient where there is none.
      if (i0 == 0 && j == 0 && (causal || length == 1)) dp[0] = 0;
      if (want_q && dq) multiply(d, columns, keys, Left<T>{k + j * k_row, 1, k_row}, dp, W, dqt, W, j > from);
      if (want_kv && dk) multiply(keys, d, n, Left<T>{dp, W, 1}, q + i0 * q_row, q_row, dk + j * k_row, k_row, true);
      if (want_kv && dv) multiply(keys, e, n, Left<T>{s, W, 1}, g + i0 * o_row, o_row, dv + j * v_row, v_row, true);
    }
    if (want_q && dq) transpose(d, n, dqt, W, dq + i0 * q_row, q_row, T(1), d);
  }
};

struct Unit {
  int64_t document, head, from, to;  // head: query head (pass over queries) or key head; rows of queries or keys
};

}  // namespace

void AttentionBackward::supports(const Call& c, const Op&) { decline_bf16(c, "attention_backward"); }

uint64_t AttentionBackward::workspace(const Call& c, const Op&) {
  return uint64_t(scratch_elements(c.dim(0, 2), c.dim(2, 2)) * c.threads()) * (c.in(0).dtype == KB_F64 ? 8 : 4);
}

void AttentionBackward::launch(const Call& c, const Op& op) {
  const int64_t h = c.dim(0, 1), d = c.dim(0, 2), g = c.dim(1, 1), e = c.dim(2, 2), documents = c.dim(3, 0) - 1,
                each = h / g;
  const int64_t rows = c.rows(c.in(0));
  const int32_t* cu = c.get<int32_t>(3);
  check_borders("attention_backward", cu, documents, c.dim(0, 0));
  floats(c.in(0).dtype, [&]<class T>() {
    T *dq = c.put<T>(0), *dk = c.put<T>(1), *dv = c.put<T>(2);
    const auto head_of = [&](int64_t document, int64_t head, int32_t thread) {
      const int64_t t = cu[document], x = t * h + head, y = t * g + head / each;
      const auto at = [](T* p, int64_t i) { return p ? p + i : nullptr; };
      Head<T> a{};
      a.q = c.get<T>(0) + x * d, a.k = c.get<T>(1) + y * d, a.v = c.get<T>(2) + y * e;
      a.o = c.get<T>(4) + x * e, a.lse = c.get<T>(5) + x, a.g = c.get<T>(6) + x * e;
      a.dq = at(dq, x * d), a.dk = at(dk, y * d), a.dv = at(dv, y * e);
      a.q_row = h * d, a.k_row = g * d, a.v_row = g * e, a.o_row = h * e, a.lse_row = h, a.d = d, a.e = e;
      a.length = cu[document + 1] - t, a.causal = op.causal, a.scale = op.scale;
      a.scratch(c.workspace<T>() + thread * scratch_elements(d, e));
      return a;
    };
    const auto clear_keys = [&](const Head<T>& a, int64_t from, int64_t to) {
      for (int64_t j = from; j < to; ++j) {
        if (a.dk) std::fill_n(a.dk + j * a.k_row, d, T(0));
        if (a.dv) std::fill_n(a.dv + j * a.v_row, e, T(0));
      }
    };
    std::vector<Unit> whole, by_query, by_key;
    std::vector<double> whole_cost, query_cost, key_cost;
    for (int64_t t = 0; t < documents; ++t) {
      const int64_t n = cu[t + 1] - cu[t];
      if (!n) continue;
      for (int64_t x = 0; x < g; ++x)
        whole.push_back({t, x, 0, n}), whole_cost.push_back(double(n) * double(n) * double(each * (d + e)) * 2.5);
    }
    double total = 0, slowest = 0;
    for (double x : whole_cost) total += x;
    const std::vector<int64_t> border = share_borders(whole_cost, c.threads());
    for (int32_t t = 0; t < c.threads(); ++t) {
      double mine = 0;
      for (int64_t u = border[size_t(t)]; u < border[size_t(t) + 1]; ++u) mine += whole_cost[size_t(u)];
      slowest = std::max(slowest, mine);
    }
    if (dq && (dk || dv) && slowest * 5 <= total / c.threads() * 7) {
      share(c, whole_cost, [&](int64_t first, int64_t last, int32_t thread) {
        for (int64_t u = first; u < last; ++u) {
          const Unit& w = whole[size_t(u)];
          for (int64_t r = 0; r < each; ++r) {
            Head<T> a = head_of(w.document, w.head * each + r, thread);
            if (!r) clear_keys(a, 0, a.length);
            for (int64_t i = 0; i < a.length; i += W) a.queries(i, 0, a.length, true, true);
          }
        }
      });
    } else {
      for (const Unit& w : whole) {
        for (int64_t r = 0; r < each; ++r)
          for (int64_t i = 0; i < w.to; i += W) {
            const int64_t end = std::min(i + W, w.to);
            by_query.push_back({w.document, w.head * each + r, i, end});
            query_cost.push_back(double((op.causal ? end : w.to) * (end - i)) * double(d + e) * 1.5);
          }
        for (int64_t j = 0; j < w.to; j += kKeyRun) {
          const int64_t end = std::min(j + kKeyRun, w.to);
          by_key.push_back({w.document, w.head, j, end});
          key_cost.push_back(double((op.causal ? w.to - j : w.to) * (end - j)) * double(each * (d + e)) * 2);
        }
      }
      if (dq)
        share(c, query_cost, [&](int64_t first, int64_t last, int32_t thread) {
          for (int64_t u = first; u < last; ++u) {
            const Unit& w = by_query[size_t(u)];
            Head<T> a = head_of(w.document, w.head, thread);
            a.queries(w.from, 0, a.length, true, false);
          }
        });
      if (dk || dv)
        share(c, key_cost, [&](int64_t first, int64_t last, int32_t thread) {
          for (int64_t u = first; u < last; ++u) {
            const Unit& w = by_key[size_t(u)];
            for (int64_t r = 0; r < each; ++r) {
              Head<T> a = head_of(w.document, w.head * each + r, thread);
              if (!r) clear_keys(a, w.from, w.to);
              for (int64_t i = op.causal ? w.from / W * W : 0; i < a.length; i += W)
                a.queries(i, w.from, w.to, false, true);
            }
          }
        });
    }
    const int64_t head = documents ? cu[0] : rows, tail = std::min<int64_t>(documents ? cu[documents] : rows, rows);
    const auto clear = [&](T* x, int64_t width) {
      if (x) std::fill(x, x + head * width, T(0)), std::fill(x + tail * width, x + rows * width, T(0));
    };
    clear(dq, h * d), clear(dk, g * d), clear(dv, g * e);
  });
}

}  // namespace kb::cpu
