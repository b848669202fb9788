// Ops that look along packed documents, and the serving caches.
#include "ops/common.h"
#include "ops/ops.h"

namespace kitbash {
namespace {
using kb::Grad;
using kb::Infer;
using kb::Values;

const kb_type& check_cu(Infer& s, uint32_t i) {
  const kb_type& cu = s.in(i, 1, "cu");
  s.dtype(cu, KB_I32, "cu");
  if (!cu.shape[0]) kb::fail("cu must have at least one border but has none");
  return cu;
}
// past and slot: one number a document, behind cu.
void check_documents(Infer& s, const kb_type& cu, uint32_t past) {
  for (const auto& [i, what] : {std::pair(past, "past"), std::pair(past + 1, "slot")}) {
    if (i > past && !s.has(i)) continue;
    s.dtype(s.in(i, 1, what), KB_I32, what);
    s.same(s.in(i, what).shape[0], cu.shape[0] - 1, what);
  }
}

struct ShortConvOp : kb::ops::ShortConv {
  void infer(Infer& s) const {
    const kb_type &x = s.in(0, 2, "x"), &w = s.in(1, 2, "w");
    s.same(w.shape[0], x.shape[1], "channels of w");
    check_cu(s, 2);
    s.like(x);
    if (!s.has(3)) return;
    const kb_type& state = s.in(3, 3, "state");
    s.dtype(state, x.dtype, "state");
    s.same(state.shape[1], w.shape[1] - 1, "taps of the state");
    s.same(state.shape[2], x.shape[1], "channels of the state");
    s.like(state);
    s.in_place(1, 3);
  }
  double flops(const kb::Call& c) const { return 2.0 * double(kb::elements(c.in(0)) * c.dim(1, 1)); }
  void gradient(Grad& g) const {
    if (g.in(3)) kb::fail("has no gradient through a state");
    const Values d = g.b.emit_n("short_conv_backward", {g.in(0), g.in(1), g.in(2), g.up(0)});
    g.down(0, d[0]);
    g.down(1, d[1]);
  }
};
struct ShortConvBackwardOp : kb::ops::ShortConvBackward {
  void infer(Infer& s) const {
    const kb_type &x = s.in(0, 2, "x"), &w = s.in(1, 2, "w");
    s.same(w.shape[0], x.shape[1], "channels of w");
    check_cu(s, 2);
    check_like(s, s.in(3, "dy"), x, "size of dy");
    s.like(x);
    s.like(w);
  }
  double flops(const kb::Call& c) const { return 4.0 * double(kb::elements(c.in(0)) * c.dim(1, 1)); }
};

void check_heads(Infer& s, const kb_type& q, const kb_type& k, const kb_type& v, int rows) {
  s.dtype(k, q.dtype, "k");
  s.dtype(v, q.dtype, "v");
  const int64_t heads = q.shape[1], groups = k.shape[rows];
  if (heads < 1 || groups < 1 || heads % groups)
    kb::fail("heads (", heads, ") must be a multiple of the key heads (", groups, ")");
  s.same(v.shape[rows], groups, "heads of v");
  s.same(k.shape[rows + 1], q.shape[2], "width of k");
}
// Counted as one document of all rows: an upper bound for packed ones.
double attention_flops(const kb::Call& c, double factor) {
  const double t = double(c.dim(0, 0)), h = double(c.dim(0, 1)), d = double(c.dim(0, 2)), e = double(c.dim(2, 2));
  return factor * t * t / 2 * h * (d + e) * 2;
}
struct AttentionOp : kb::ops::Attention {
  void infer(Infer& s) const {
    const kb_type &q = s.in(0, 3, "q"), &k = s.in(1, 3, "k"), &v = s.in(2, 3, "v");
    check_heads(s, q, k, v, 1);
    s.same(k.shape[0], q.shape[0], "tokens of k");
    s.same(v.shape[0], q.shape[0], "tokens of v");
    check_cu(s, 3);
    kb_type& o = s.out({q.shape[0], q.shape[1], v.shape[2]}, v.dtype, &q);
    o.lo = std::min(v.lo, 0.0), o.hi = std::max(v.hi, 0.0);
    s.out({q.shape[0], q.shape[1]}, kb::wide_of(q.dtype), &q);
    s.out({q.shape[1]}, kb::wide_of(q.dtype));
  }
  double flops(const kb::Call& c) const { return attention_flops(c, causal ? 1 : 2); }
  void gradient(Grad& g) const {
    const Values d = g.b.emit_n("attention_backward", {g.in(0), g.in(1), g.in(2), g.in(3), g.out(0), g.out(1), g.up(0)},
                                {{"scale", scale}, {"causal", causal}});
    for (uint32_t i = 0; i < 3; ++i) g.down(i, d[i]);
  }
};
struct AttentionBackwardOp : kb::ops::AttentionBackward {
  void infer(Infer& s) const {
    const kb_type &q = s.in(0, 3, "q"), &k = s.in(1, 3, "k"), &v = s.in(2, 3, "v");
    check_heads(s, q, k, v, 1);
    s.same(k.shape[0], q.shape[0], "tokens of k");
    s.same(v.shape[0], q.shape[0], "tokens of v");
    check_cu(s, 3);
    kb_type o = q, lse = q;
    o.shape[2] = v.shape[2], lse.rank = 2;
    check_like(s, s.in(4, "o"), o, "size of o");
    check_like(s, s.in(5, "lse"), lse, "size of lse");
    check_like(s, s.in(6, "do"), o, "size of do");
    s.like(q), s.like(k), s.like(v);
  }
  double flops(const kb::Call& c) const { return attention_flops(c, causal ? 2.5 : 5); }
};

struct CacheAppendOp : kb::ops::CacheAppend {
  void infer(Infer& s) const {
    const kb_type &cache = s.in(0, "cache"), &rows = s.in(1, "rows");
    if (cache.rank != rows.rank + 1) kb::fail("the cache must have rank ", rows.rank + 1, " but got ", cache.rank);
    for (int d = 1; d < rows.rank; ++d) s.same(rows.shape[d], cache.shape[d + 1], "width of the rows");
    s.dtype(rows, cache.dtype, "rows");
    check_documents(s, check_cu(s, 2), 3);
    s.like(cache);
    s.in_place(0, 0);
  }
  double bytes(const kb::Call& c) const {
    return 2.0 * double(kb::elements(c.in(1))) * (c.in(1).dtype == KB_BF16 ? 2 : c.in(1).dtype == KB_F64 ? 8 : 4);
  }
};
struct AttentionCachedOp : kb::ops::AttentionCached {
  void infer(Infer& s) const {
    const kb_type &q = s.in(0, 3, "q"), &k = s.in(1, 4, "k"), &v = s.in(2, 4, "v");
    check_heads(s, q, k, v, 2);
    for (int d : {0, 1}) s.same(v.shape[d], k.shape[d], d ? "capacity of v" : "slots of v");
    check_documents(s, check_cu(s, 3), 4);
    s.out({q.shape[0], q.shape[1], v.shape[3]}, v.dtype, &q);
  }
  double flops(const kb::Call& c) const {
    return 2.0 * double(c.dim(0, 0) * c.dim(0, 1) * c.dim(1, 1)) * double(c.dim(0, 2) + c.dim(2, 3));
  }
};

}  // namespace

std::vector<const kb_op*> sequence_ops() {
  return op_tables<ShortConvOp, ShortConvBackwardOp, AttentionOp, AttentionBackwardOp, CacheAppendOp,
                   AttentionCachedOp>();
}

}  // namespace kitbash
