#include "ops/common.h"
#include "ops/ops.h"

namespace kitbash {
namespace {
using kb::Grad;
using kb::Infer;
using kb::Shape;
using kb::Value;

// The output keeps what is known about values, and the extent when axis 0 is still the same axis.
void shaped(Infer& s, const kb_type& x, const Shape& shape, bool same_rows) {
  kb_type& t = s.out(shape, x.dtype, same_rows ? &x : nullptr);
  t.lo = x.lo, t.hi = x.hi;
}
void with_zero(kb_type& t) { t.lo = std::min(t.lo, 0.0), t.hi = std::max(t.hi, 0.0); }

struct ReshapeOp : kb::ops::Reshape {
  static constexpr uint32_t traits = KB_VIEW;
  void infer(Infer& s) const {
    const kb_type& x = s.in(0, "x");
    Shape o = shape;
    int64_t known = 1;
    int open = -1;
    for (int d = 0; d < o.n; ++d) {
      if (o.at[d] >= 0)
        known *= o.at[d];
      else if (open >= 0)
        kb::fail("at most one size may be -1");
      else
        open = d;
    }
    const int64_t n = kb::elements(x);
    if (open >= 0) o.at[open] = known ? n / known : 0;
    if (o.size() != n) kb::fail("reshape must keep ", n, " elements but the new shape has ", o.size());
    shaped(s, x, o, o.n && x.rank && o.at[0] == x.shape[0]);
  }
  double bytes(const kb::Call&) const { return 0; }
  void gradient(Grad& g) const { g.down(0, g.b.reshape(g.up(0), g.in(0).shape())); }
};
struct PermuteOp : kb::ops::Permute {
  void infer(Infer& s) const {
    const kb_type& x = s.in(0, "x");
    s.same(axes.n, x.rank, "number of axes");
    Shape o = axes;
    uint32_t seen = 0;
    for (int d = 0; d < x.rank; ++d) {
      axis_of(axes.at[d], x.rank);
      seen |= 1u << axes.at[d];
      o.at[d] = x.shape[axes.at[d]];
    }
    if (seen + 1 != 1u << x.rank) kb::fail("axes must name every axis once");
    shaped(s, x, o, x.rank && axes.at[0] == 0);
  }
  void gradient(Grad& g) const {
    Shape back = axes;
    for (int d = 0; d < axes.n; ++d) back.at[axes.at[d]] = d;
    g.down(0, g.b.permute(g.up(0), back));
  }
};
struct SliceOp : kb::ops::Slice {
  void infer(Infer& s) const {
    const kb_type& x = s.in(0, "x");
    const int64_t a = axis_of(axis, x.rank);
    if (begin < 0 || end > x.shape[a] || begin >= end)
      kb::fail("slice must lie in [0, ", x.shape[a], ") but got [", begin, ", ", end, ")");
    Shape o = kb::shape_of(x);
    o.at[a] = end - begin;
    shaped(s, x, o, a != 0);
  }
  void gradient(Grad& g) const {
    const Shape s = g.in(0).shape();
    const int64_t a = axis_of(axis, s.n);
    g.down(0, g.b.emit("unslice", {g.up(0)}, {{"axis", a}, {"begin", begin}, {"size", s.at[a]}}));
  }
};
struct UnsliceOp : kb::ops::Unslice {
  void infer(Infer& s) const {
    const kb_type& x = s.in(0, "x");
    const int64_t a = axis_of(axis, x.rank);
    if (begin < 0 || x.shape[a] > size || begin > size - x.shape[a])
      kb::fail(x.shape[a], " from ", begin, " on do not fit into ", size);
    Shape o = kb::shape_of(x);
    o.at[a] = size;
    shaped(s, x, o, a != 0);
    with_zero(s.c->out[0]);
  }
  void gradient(Grad& g) const {
    const Shape s = g.in(0).shape();
    const int64_t a = axis_of(axis, s.n);
    g.down(0, g.b.slice(g.up(0), a, begin, begin + s.at[a]));
  }
};
struct ConcatOp : kb::ops::Concat {
  void infer(Infer& s) const {
    const kb_type& first = s.in(0, "x0");
    const int64_t a = axis_of(axis, first.rank);
    kb_type t = first;
    t.shape[a] = 0;
    for (uint32_t i = 0; i < s.n_in(); ++i) {
      const kb_type& x = s.in(i, first.rank, "operand");
      s.dtype(x, first.dtype, "operand");
      for (int d = 0; d < x.rank; ++d)
        if (d != a) s.same(x.shape[d], first.shape[d], "size of an operand");
      t.shape[a] += x.shape[a];
      t.lo = std::min(t.lo, x.lo), t.hi = std::max(t.hi, x.hi);
      if (x.extent) t.extent = x.extent;
    }
    if (a == 0) t.extent = 0;
    put(s, t);
  }
  void gradient(Grad& g) const {
    const int64_t a = axis_of(axis, g.in(0).shape().n);
    int64_t at = 0;
    for (uint32_t i = 0; i < g.c->n_in; ++i) {
      const int64_t w = g.in(i).dim(int(a));
      if (g.need(i)) g.down(i, g.b.slice(g.up(0), a, at, at + w));
      at += w;
    }
  }
};
struct BroadcastOp : kb::ops::Broadcast {
  void infer(Infer& s) const {
    const kb_type& x = s.in(0, "x");
    kb_type t{};
    t.rank = shape.n;
    std::copy(shape.at, shape.at + shape.n, t.shape);
    const kb_type both = broadcast_type(x, t);
    if (both.rank != t.rank || !std::equal(t.shape, t.shape + t.rank, both.shape))
      kb::fail("does not broadcast to that shape");
    shaped(s, x, shape, x.rank == t.rank && x.rank && x.shape[0] == t.shape[0]);
  }
  void gradient(Grad& g) const { g.down_to(0, g.up(0)); }
};
struct CopyOp : kb::ops::Copy {
  static constexpr uint32_t traits = KB_POINTWISE;
  void infer(Infer& s) const { put(s, s.in(0, "x")); }
  void gradient(Grad& g) const { g.down(0, g.up(0)); }
};

}  // namespace

std::vector<const kb_op*> shape_ops() {
  return op_tables<ReshapeOp, PermuteOp, SliceOp, UnsliceOp, ConcatOp, BroadcastOp, CopyOp>();
}

}  // namespace kitbash
