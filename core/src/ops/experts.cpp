// Mixture-of-experts plumbing: rows sorted by expert, products over ragged segments, and the sum of a token's rows.
#include "ops/common.h"
#include "ops/ops.h"

namespace kitbash {
namespace {
using kb::Grad;
using kb::Infer;

struct ExpertSortOp : kb::ops::ExpertSort {
  void infer(Infer& s) const {
    const kb_type& ids = s.in(0, 2, "ids");
    s.dtype(ids, KB_I32, "ids");
    if (experts < 1) kb::fail("experts must be at least 1 but got ", experts);
    if (tile < 1) kb::fail("tile must be at least 1 but got ", tile);
    const int64_t n = ids.shape[0] * ids.shape[1], rows = n + std::min(experts, n) * (tile - 1);
    if (rows > INT32_MAX)
      kb::fail("rows are numbered by i32: tokens times experts of a token must be at most ", INT32_MAX, " but got ",
               rows, " rows; lower micro_tokens");
    kb_type& source = s.out({rows}, KB_I32);
    source.lo = -1, source.hi = double(std::max<int64_t>(0, n - 1));
    kb_type& offsets = s.out({experts + 1}, KB_I32);
    offsets.lo = 0, offsets.hi = double(rows);
  }
};
struct DispatchOp : kb::ops::Dispatch {
  void infer(Infer& s) const {
    const kb_type &x = s.in(0, 2, "x"), &source = s.in(1, 1, "source");
    s.dtype(source, KB_I32, "source");
    kb_type& t = s.out({source.shape[0], x.shape[1]}, x.dtype);
    t.lo = std::min(x.lo, 0.0), t.hi = std::max(x.hi, 0.0);
  }
  void gradient(Grad& g) const { g.down(0, g.b.combine(g.up(0), g.in(1), g.in(0).dim(0), active)); }
};
struct CombineOp : kb::ops::Combine {
  void infer(Infer& s) const {
    const kb_type &rows = s.in(0, 2, "rows"), &source = s.in(1, 1, "source");
    s.dtype(source, KB_I32, "source");
    s.same(source.shape[0], rows.shape[0], "rows of source");
    s.out({tokens, rows.shape[1]}, rows.dtype);
  }
  double flops(const kb::Call& c) const { return double(tokens * active * c.dim(0, 1)); }
  void gradient(Grad& g) const { g.down(0, g.b.dispatch(g.up(0), g.in(1), active)); }
};
struct GroupedLinearOp : kb::ops::GroupedLinear {
  void infer(Infer& s) const {
    const kb_type &rows = s.in(0, 2, "rows"), &w = s.in(1, 3, "w"), &offsets = s.in(2, 1, "offsets");
    if (w.dtype != rows.dtype || !is_float(w.dtype))
      kb::fail("operands must have one float type but got ", kb::dtype_name(rows.dtype), " and ",
               kb::dtype_name(w.dtype));
    s.dtype(offsets, KB_I32, "offsets");
    s.same(offsets.shape[0], w.shape[0] + 1, "number of offsets");
    s.same(w.shape[tw ? 2 : 1], rows.shape[1], "inner width of w");
    s.out({rows.shape[0], w.shape[tw ? 1 : 2]}, rows.dtype);
  }
  double flops(const kb::Call& c) const { return 2.0 * double(used) * double(c.dim(1, 1) * c.dim(1, 2)); }
  void gradient(Grad& g) const {
    if (g.need(0)) g.down(0, g.b.grouped_linear(g.up(0), g.in(1), g.in(2), used, !tw));
    if (!g.need(1)) return;
    const int64_t experts = g.in(1).dim(0);
    g.down(1, tw ? g.b.grouped_outer(g.up(0), g.in(0), g.in(2), experts, used)
                 : g.b.grouped_outer(g.in(0), g.up(0), g.in(2), experts, used));
  }
};
struct GroupedOuterOp : kb::ops::GroupedOuter {
  void infer(Infer& s) const {
    const kb_type &a = s.in(0, 2, "a"), &b = s.in(1, 2, "b"), &offsets = s.in(2, 1, "offsets");
    s.dtype(b, a.dtype, "b");
    s.dtype(offsets, KB_I32, "offsets");
    s.same(b.shape[0], a.shape[0], "rows of b");
    s.same(offsets.shape[0], experts + 1, "number of offsets");
    s.out({experts, a.shape[1], b.shape[1]}, a.dtype);
  }
  double flops(const kb::Call& c) const { return 2.0 * double(used) * double(c.dim(0, 1) * c.dim(1, 1)); }
};

}  // namespace

std::vector<const kb_op*> expert_ops() {
  return op_tables<ExpertSortOp, DispatchOp, CombineOp, GroupedLinearOp, GroupedOuterOp>();
}

}  // namespace kitbash
