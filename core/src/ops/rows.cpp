// Rows by index, top-k, and the sources of constants.
#include "ops/common.h"
#include "ops/ops.h"

namespace kitbash {
namespace {
using kb::Grad;
using kb::Infer;
using kb::Shape;

void with_zero(kb_type& t) { t.lo = std::min(t.lo, 0.0), t.hi = std::max(t.hi, 0.0); }

struct GatherOp : kb::ops::Gather {
  void infer(Infer& s) const {
    const kb_type &x = s.in(0, "x"), &rows = s.in(1, 1, "rows");
    s.dtype(rows, KB_I32, "rows");
    if (!x.rank) kb::fail("x must have rank 1 or more");
    Shape o = kb::shape_of(x);
    o.at[0] = rows.shape[0];
    kb_type& t = s.out(o, x.dtype, &rows);
    t.lo = x.lo, t.hi = x.hi;
    with_zero(t);
  }
  void gradient(Grad& g) const { g.down(0, g.b.scatter_add(g.up(0), g.in(1), g.in(0).dim(0))); }
};
struct ScatterAddOp : kb::ops::ScatterAdd {
  void infer(Infer& s) const {
    const kb_type &x = s.in(0, "x"), &r = s.in(1, 1, "rows");
    s.dtype(r, KB_I32, "rows");
    if (!x.rank) kb::fail("x must have rank 1 or more");
    s.same(r.shape[0], x.shape[0], "number of rows");
    Shape o = kb::shape_of(x);
    o.at[0] = rows;
    s.out(o, x.dtype);
  }
  double flops(const kb::Call& c) const { return double(kb::elements(c.in(0))); }
  void gradient(Grad& g) const { g.down(0, g.b.gather(g.up(0), g.in(1))); }
};
struct TakeOp : kb::ops::Take {
  void infer(Infer& s) const {
    const kb_type &x = s.in(0, 2, "x"), &ids = s.in(1, 2, "ids");
    s.dtype(ids, KB_I32, "ids");
    s.same(ids.shape[0], x.shape[0], "rows of ids");
    kb_type& t = s.out({x.shape[0], ids.shape[1]}, x.dtype, &x);
    t.lo = x.lo, t.hi = x.hi;
  }
  void gradient(Grad& g) const { g.down(0, g.b.emit("untake", {g.up(0), g.in(1)}, {{"width", g.in(0).dim(1)}})); }
};
struct UntakeOp : kb::ops::Untake {
  void infer(Infer& s) const {
    const kb_type &x = s.in(0, 2, "x"), &ids = s.in(1, 2, "ids");
    s.dtype(ids, KB_I32, "ids");
    check_like(s, ids, x, "size of ids");
    kb_type& t = s.out({x.shape[0], width}, x.dtype, &x);
    t.lo = x.lo, t.hi = x.hi;
    with_zero(t);
  }
  void gradient(Grad& g) const { g.down(0, g.b.take(g.up(0), g.in(1))); }
};
struct TopkOp : kb::ops::Topk {
  void infer(Infer& s) const {
    const kb_type& x = s.in(0, 2, "x");
    if (k < 1 || k > x.shape[1]) kb::fail("k must be in [1, ", x.shape[1], "] but got ", k);
    kb_type& v = s.out({x.shape[0], k}, x.dtype, &x);
    v.lo = x.lo, v.hi = x.hi;
    kb_type& ids = s.out({x.shape[0], k}, KB_I32, &x);
    ids.lo = 0, ids.hi = double(x.shape[1] - 1);
  }
  double flops(const kb::Call& c) const { return 4.0 * double(kb::elements(c.in(0))); }
};

void check_shape(const Shape& s) {
  for (int d = 0; d < s.n; ++d)
    if (s.at[d] < 0) kb::fail("size ", d, " must not be negative but got ", s.at[d]);
}
struct FillOp : kb::ops::Fill {
  static constexpr uint32_t traits = KB_SOURCE;
  void infer(Infer& s) const {
    check_shape(shape);
    kb_type& t = s.out(shape, uint32_t(dtype));
    t.lo = t.hi = value;
  }
};
struct VectorOp : kb::ops::Vector {
  static constexpr uint32_t traits = KB_SOURCE;
  void infer(Infer& s) const {
    if (!values.n) kb::fail("needs at least one value");
    kb_type& t = s.out({int64_t(values.n)}, uint32_t(dtype));
    t.lo = *std::min_element(values.at, values.at + values.n);
    t.hi = *std::max_element(values.at, values.at + values.n);
  }
};
struct IotaOp : kb::ops::Iota {
  static constexpr uint32_t traits = KB_SOURCE;
  void infer(Infer& s) const {
    check_shape({n});
    if (n > int64_t(INT32_MAX) + 1) kb::fail("n must be at most 2147483648, being counted by i32, but got ", n);
    kb_type& t = s.out({n}, KB_I32);
    t.lo = 0, t.hi = double(std::max<int64_t>(0, n - 1));
  }
};
struct NormalOp : kb::ops::Normal {
  static constexpr uint32_t traits = KB_SOURCE | KB_RANDOM;
  void infer(Infer& s) const {
    check_shape(shape);
    s.out(shape, uint32_t(dtype));
  }
};
struct UniformOp : kb::ops::Uniform {
  static constexpr uint32_t traits = KB_SOURCE | KB_RANDOM;
  void infer(Infer& s) const {
    check_shape(shape);
    if (!(lo <= hi)) kb::fail("lo must not exceed hi but got ", lo, " and ", hi);
    kb_type& t = s.out(shape, uint32_t(dtype));
    t.lo = lo, t.hi = hi;
  }
};

}  // namespace

std::vector<const kb_op*> row_ops() { return op_tables<GatherOp, ScatterAddOp, TakeOp, UntakeOp, TopkOp>(); }
std::vector<const kb_op*> source_ops() { return op_tables<FillOp, VectorOp, IotaOp, NormalOp, UniformOp>(); }

}  // namespace kitbash
