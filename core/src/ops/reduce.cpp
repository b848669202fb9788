#include "ops/common.h"
#include "ops/ops.h"

namespace kitbash {
namespace {
using kb::Grad;
using kb::Infer;
using kb::Shape;
using kb::Value;

// x without the axis, or with width 1 there.
Shape reduced(const kb_type& x, int64_t axis, bool keep) {
  Shape s = kb::shape_of(x);
  if (keep) {
    s[int(axis)] = 1;
    return s;
  }
  for (int d = int(axis); d + 1 < s.n; ++d) s.at[d] = s.at[d + 1];
  --s.n;
  return s;
}
double one_pass(const kb::Call& c) { return double(kb::elements(c.in(0))); }

struct SumOp : kb::ops::Sum {
  void infer(Infer& s) const {
    const kb_type& x = s.in(0, "x");
    const int64_t a = axis_of(axis, x.rank), n = x.shape[a];
    kb_type& t = s.out(reduced(x, a, keep), x.dtype, a ? &x : nullptr);
    set_range(t, n ? double(n) * x.lo : 0, n ? double(n) * x.hi : 0);
  }
  double flops(const kb::Call& c) const { return one_pass(c); }
  void gradient(Grad& g) const {
    const Shape s = g.in(0).shape();
    Shape kept = s;
    kept[int(axis_of(axis, s.n))] = 1;
    g.down(0, g.b.broadcast(g.b.reshape(g.up(0), kept), s));
  }
};
struct AmaxOp : kb::ops::Amax {
  void infer(Infer& s) const {
    const kb_type& x = s.in(0, "x");
    const int64_t a = axis_of(axis, x.rank);
    kb_type& t = s.out(reduced(x, a, keep), x.dtype, a ? &x : nullptr);
    t.lo = x.lo, t.hi = x.hi;
  }
  double flops(const kb::Call& c) const { return one_pass(c); }
};
struct SumToOp : kb::ops::SumTo {
  void infer(Infer& s) const {
    const kb_type& x = s.in(0, "x");
    kb_type t = x;
    t.rank = shape.n;
    std::copy(shape.at, shape.at + shape.n, t.shape);
    t.extent = 0;
    const kb_type both = broadcast_type(x, t);
    if (both.rank != x.rank || !std::equal(x.shape, x.shape + x.rank, both.shape))
      kb::fail("does not sum to that shape");
    const bool rows = shape.n == x.rank && x.rank && shape[0] == x.shape[0];
    s.out(shape, x.dtype, rows ? &x : nullptr);
  }
  double flops(const kb::Call& c) const { return one_pass(c); }
  void gradient(Grad& g) const { g.down(0, g.b.broadcast(g.up(0), g.in(0).shape())); }
};
struct SquareSumOp : kb::ops::SquareSum {
  void infer(Infer& s) const {
    const uint32_t first = s.in(0, "x").dtype;
    for (uint32_t i = 1; i < s.n_in(); ++i) s.dtype(s.in(i, "x"), first, "x");
    s.out({}, kb::wide_of(first)).lo = 0;
  }
  double flops(const kb::Call& c) const {
    double n = 0;
    for (uint32_t i = 0; i < c.n_in(); ++i) n += double(kb::elements(c.in(i)));
    return 2 * n;
  }
};
struct SoftmaxOp : kb::ops::Softmax {
  void infer(Infer& s) const {
    const kb_type& x = s.in(0, "x");
    if (!x.rank || !is_float(x.dtype)) kb::fail("x must be a float tensor of rank 1 or more");
    set_range(s.like(x), 0, 1);
  }
  double flops(const kb::Call& c) const { return 5 * one_pass(c); }
  void gradient(Grad& g) const {
    const Value y = g.out(0), u = g.up(0);
    g.down(0, y * (u - g.b.sum(u * y, -1, true)));
  }
};

}  // namespace

std::vector<const kb_op*> reduce_ops() { return op_tables<SumOp, AmaxOp, SumToOp, SquareSumOp, SoftmaxOp>(); }

}  // namespace kitbash
