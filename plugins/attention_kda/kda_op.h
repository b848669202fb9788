// kda_op.h: the ops of Kimi Delta Attention, `kda` and `kda_backward` (Kimi K3 report, section 2.1.1; Kimi Linear
// report, section 3).
//   q, k   [tokens, heads, K]  compute type   k is expected with norm <= 1, q too; the op does not normalise
//   v      [tokens, heads, V]  compute type
//   g      [tokens, heads, K]  wide           log decay, <= 0
//   beta   [tokens, heads]     wide           write strength
//   cu     [documents + 1]     i32            borders of the documents; tokens past the last one are unused and give
//   zeros s0     [documents, heads, K, V] wide      absent: zero. With slot: [slots, heads, K, V], changed in place
//   slot   [documents]         i32            row of s0 that document d continues; rows of others stay as they are
// For each token of a document, S being [K, V]:
//   S = diag(exp(g)) S;   S = S + beta k (v - S^T k)^T;   o = scale S^T q
#pragma once
#include "kitbash/op.h"

namespace kda {

enum Input : uint32_t { kQ, kK, kV, kG, kBeta, kCu, kS0, kSlot };
enum BackwardInput : uint32_t { kDo = 7, kDstate = 8 };  // 0..6 as above

// 6 T K V for the three products with the state, the rest inside chunks of 64 (Kimi Linear report, eq. 13, written for
// K = V).
inline double chunked_flops(const kb::Call& c) {
  const double tokens = double(c.rows(c.in(kQ))), heads = double(c.dim(kQ, 1)), K = double(c.dim(kQ, 2)),
               V = double(c.dim(kV, 2));
  const double C = 64;
  return tokens * heads * (6 * K * V + C * (2 * K + V) + C * C);
}

// Shapes and types of the operands that both ops share.
inline void check_operands(kb::Infer& s) {
  const kb_type &q = s.in(kQ, 3, "q"), &k = s.in(kK, 3, "k"), &v = s.in(kV, 3, "v"), &g = s.in(kG, 3, "g");
  const kb_type &beta = s.in(kBeta, 2, "beta"), &cu = s.in(kCu, 1, "cu");
  const uint32_t wide = kb::wide_of(q.dtype);
  s.same(k.shape[0], q.shape[0], "tokens of k (axis 0, as in q)"),
      s.same(k.shape[1], q.shape[1], "heads of k (axis 1, as in q)");
  s.same(k.shape[2], q.shape[2], "key width of k (axis 2, as in q)");
  s.same(v.shape[0], q.shape[0], "tokens of v (axis 0, as in q)"),
      s.same(v.shape[1], q.shape[1], "heads of v (axis 1, as in q)");
  s.same(g.shape[0], q.shape[0], "tokens of g (axis 0, as in q)"),
      s.same(g.shape[1], q.shape[1], "heads of g (axis 1, as in q)");
  s.same(g.shape[2], q.shape[2], "key width of g (axis 2, as in q)");
  s.same(beta.shape[0], q.shape[0], "tokens of beta (axis 0, as in q)");
  s.same(beta.shape[1], q.shape[1], "heads of beta (axis 1, as in q)");
  s.dtype(k, q.dtype, "k (as q)"), s.dtype(v, q.dtype, "v (as q)");
  s.dtype(g, wide, "g (wide)"), s.dtype(beta, wide, "beta (wide)"), s.dtype(cu, KB_I32, "cu");
  if (cu.shape[0] < 1) kb::fail("cu must have documents + 1 >= 1 elements but got ", cu.shape[0]);
}
inline void check_state(kb::Infer& s, const kb_type& t, int64_t rows, const char* what) {
  const kb_type &q = s.c->in[kQ], &v = s.c->in[kV];
  if (t.rank != 4) kb::fail(what, " must be [documents or slots, heads, K, V] but got rank ", t.rank);
  const int64_t want[4] = {rows < 0 ? t.shape[0] : rows, q.shape[1], q.shape[2], v.shape[2]};
  for (int i = 0; i < 4; ++i)
    if (t.shape[i] != want[i]) kb::fail("axis ", i, " of ", what, " must be ", want[i], " but got ", t.shape[i]);
  s.dtype(t, kb::wide_of(q.dtype), what);
}

struct KdaOp {  // q, k, v, g, beta, cu, s0?, slot? -> o [tokens, heads, V], state [documents or slots, heads, K, V]
  static constexpr const char* name = "kda";
  double scale = 1;

  void infer(kb::Infer& s) const {
    check_operands(s);
    const kb_type &q = s.c->in[kQ], &v = s.c->in[kV], &g = s.c->in[kG];
    const int64_t documents = s.c->in[kCu].shape[0] - 1;
    s.out({v.shape[0], v.shape[1], v.shape[2]}, v.dtype, &q);
    if (!s.has(kSlot)) {
      if (s.has(kS0)) check_state(s, s.c->in[kS0], documents, "s0");
      s.out({documents, q.shape[1], q.shape[2], v.shape[2]}, g.dtype);
      return;
    }
    const kb_type &slot = s.in(kSlot, 1, "slot"), &s0 = s.in(kS0, "s0, which slot selects rows of");
    s.dtype(slot, KB_I32, "slot"), s.same(slot.shape[0], documents, "documents of slot (axis 0, as in cu)");
    check_state(s, s0, -1, "s0");
    s.like(s0);
    s.in_place(1, kS0);
  }
  double flops(const kb::Call& c) const { return chunked_flops(c); }
  void gradient(kb::Grad& g) const {
    if (g.in(kSlot)) kb::fail("has no gradient when it continues the sequences of slots");
    kb::Values in;
    for (uint32_t i = 0; i <= kS0; ++i) in.push_back(g.in(i));
    in.push_back(g.up(0)), in.push_back(g.up(1));
    const kb::Values d = g.b.emit_n("kda_backward", in, {{"scale", scale}});
    for (uint32_t i = 0; i < 5; ++i) g.down(i, d[i]);
    g.down(kS0, d[5]);
  }
};

struct KdaBackwardOp {  // q, k, v, g, beta, cu, s0?, do?, dstate? -> dq, dk, dv, dg, dbeta, ds0
  static constexpr const char* name = "kda_backward";
  double scale = 1;

  void infer(kb::Infer& s) const {
    check_operands(s);
    const kb_type &q = s.c->in[kQ], &v = s.c->in[kV], &g = s.c->in[kG];
    const int64_t documents = s.c->in[kCu].shape[0] - 1;
    if (s.has(kS0)) check_state(s, s.c->in[kS0], documents, "s0");
    if (s.has(kDstate)) check_state(s, s.c->in[kDstate], documents, "dstate");
    if (s.has(kDo)) {
      const kb_type& d = s.in(kDo, 3, "do");
      for (int i = 0; i < 3; ++i)
        if (d.shape[i] != v.shape[i])
          kb::fail("axis ", i, " of do must be ", v.shape[i], " as in v but got ", d.shape[i]);
      s.dtype(d, v.dtype, "do (as v)");
    }
    for (uint32_t i = 0; i < 5; ++i) {
      const kb_type& t = s.c->in[i];
      s.out(kb::shape_of(t), t.dtype, &t);
    }
    s.out({documents, q.shape[1], q.shape[2], v.shape[2]}, g.dtype);
  }
  double flops(const kb::Call& c) const {
    return 3 * chunked_flops(c);
  }  // the forward again, and two products for each of its own
};

}  // namespace kda

KITBASH_ATTRS(kda::KdaOp, attr("scale", &Self::scale))
KITBASH_ATTRS(kda::KdaBackwardOp, attr("scale", &Self::scale))
