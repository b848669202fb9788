// Matrix products and the norm.
#include "ops/common.h"
#include "ops/ops.h"

namespace kitbash {
namespace {
using kb::Grad;
using kb::Infer;
using kb::Shape;
using kb::Value;

struct MatmulOp : kb::ops::Matmul {
  void infer(Infer& s) const {
    const kb_type &a = s.in(0, "a"), &b = s.in(1, "b");
    if (a.rank < 2 || b.rank < 2 || (b.rank > 2 && b.rank != a.rank))
      kb::fail("operands must have rank 2 or more, b rank 2 or that of a, but got ", a.rank, " and ", b.rank);
    if (a.dtype != b.dtype || !is_float(a.dtype))
      kb::fail("operands must have one float type but got ", kb::dtype_name(a.dtype), " and ", kb::dtype_name(b.dtype));
    if (b.rank > 2)
      for (int d = 0; d + 2 < a.rank; ++d) s.same(b.shape[d], a.shape[d], "batch size of b");
    if (ta && a.rank > 2 && b.rank == 2) kb::fail("a transposed a needs a b with the same batch");
    const int64_t m = a.shape[a.rank - 1 - !ta], k = a.shape[a.rank - 1 - ta];
    s.same(b.shape[b.rank - 1 - !tb], k, "inner width of b");
    Shape o = kb::shape_of(a);
    o[-2] = m, o[-1] = b.shape[b.rank - 1 - tb];
    s.out(o, a.dtype, a.rank > 2 || !ta ? &a : nullptr);
  }
  double flops(const kb::Call& c) const {
    return 2.0 * double(kb::elements(c.out(0))) * double(c.dim(0, ta ? -2 : -1));
  }
  void gradient(Grad& g) const {
    kb::Builder& b = g.b;
    Value x = g.in(0), w = g.in(1), u = g.up(0);
    if (g.need(0)) g.down(0, ta ? b.matmul(w, u, tb, true) : b.matmul(u, w, false, !tb));
    if (!g.need(1)) return;
    if (w.shape().n == 2 && x.shape().n > 2) x = b.reshape(x, {-1, x.dim(-1)}), u = b.reshape(u, {-1, u.dim(-1)});
    g.down(1, tb ? b.matmul(u, x, true, ta) : b.matmul(x, u, !ta, false));
  }
};

void check_norm(Infer& s, const kb_type& x, const kb_type& w) {
  if (!x.rank || !is_float(x.dtype)) kb::fail("x must be a float tensor of rank 1 or more");
  if (!x.shape[x.rank - 1]) kb::fail("x must have at least one channel in its last axis but has none");
  s.same(w.shape[0], x.shape[x.rank - 1], "width of the weight");
  if (w.dtype != x.dtype && w.dtype != kb::wide_of(x.dtype))
    kb::fail("the weight must be ", kb::dtype_name(x.dtype), " or wide but got ", kb::dtype_name(w.dtype));
}
struct RmsNormOp : kb::ops::RmsNorm {
  void infer(Infer& s) const {
    const kb_type& x = s.in(0, "x");
    check_norm(s, x, s.in(1, 1, "weight"));
    s.like(x);
  }
  double flops(const kb::Call& c) const { return 4.0 * double(kb::elements(c.in(0))); }
  void gradient(Grad& g) const {
    const kb::Values d = g.b.emit_n("rms_norm_backward", {g.in(0), g.in(1), g.up(0)}, {{"eps", eps}});
    g.down(0, d[0]);
    g.down(1, d[1]);
  }
};
struct RmsNormBackwardOp : kb::ops::RmsNormBackward {
  void infer(Infer& s) const {
    const kb_type &x = s.in(0, "x"), &w = s.in(1, 1, "weight");
    check_norm(s, x, w);
    s.same(kb::elements(s.in(2, "dy")), kb::elements(x), "elements of dy");
    s.like(x);
    s.like(w);
  }
  double flops(const kb::Call& c) const { return 8.0 * double(kb::elements(c.in(0))); }
};

}  // namespace

std::vector<const kb_op*> product_ops() { return op_tables<MatmulOp, RmsNormOp, RmsNormBackwardOp>(); }

}  // namespace kitbash
