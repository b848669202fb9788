// common.h: what the shape rules of base ops share.
#pragma once
#include <cmath>

#include "kitbash/op.h"
#include "kitbash/ops.h"

namespace kitbash {

inline bool is_float(uint32_t dtype) { return dtype >= KB_BF16 && dtype <= KB_F64; }

inline void set_range(kb_type& t, double a, double b) {
  t.lo = std::isnan(a) ? -INFINITY : a;
  t.hi = std::isnan(b) ? INFINITY : b;
  if (t.lo > t.hi) std::swap(t.lo, t.hi);
}

inline int64_t axis_of(int64_t axis, int rank) {
  const int64_t a = axis < 0 ? axis + rank : axis;
  if (a < 0 || a >= rank) kb::fail("axis ", axis, " does not exist in rank ", rank);
  return a;
}

// NumPy broadcasting of two shapes; the extent of axis 0 comes from the operand that brings that axis.
inline kb_type broadcast_type(const kb_type& a, const kb_type& b) {
  kb_type t{};
  t.rank = std::max(a.rank, b.rank);
  for (int i = 1; i <= t.rank; ++i) {
    const int64_t x = i <= a.rank ? a.shape[a.rank - i] : 1, y = i <= b.rank ? b.shape[b.rank - i] : 1;
    if (x != y && x != 1 && y != 1) kb::fail("shapes do not broadcast: ", x, " against ", y, " on axis ", t.rank - i);
    t.shape[t.rank - i] = x == 1 ? y : x;  // 0 against 1 is 0
  }
  t.lo = -INFINITY, t.hi = INFINITY;
  for (const kb_type* x : {&a, &b}) {
    if (!x->extent || x->rank != t.rank || x->shape[0] != t.shape[0]) continue;
    if (t.extent && t.extent != x->extent)
      kb::fail("rows belong to different extents (", t.extent, " and ", x->extent, ")");
    t.extent = x->extent;
  }
  return t;
}

// Kernels trust these sizes: an operand of another shape would be read past its end.
inline void check_like(kb::Infer& s, const kb_type& got, const kb_type& want, const char* what) {
  if (got.rank != want.rank) kb::fail(what, " must have rank ", want.rank, " but got ", got.rank);
  for (int d = 0; d < got.rank; ++d) s.same(got.shape[d], want.shape[d], what);
}

// Outputs of a known type: shape, dtype, extent and range are those of t.
inline kb_type& put(kb::Infer& s, const kb_type& t) {
  kb_type& o = s.out(kb::shape_of(t), t.dtype, &t);
  o.lo = t.lo, o.hi = t.hi;
  return o;
}

template <class... O>
std::vector<const kb_op*> op_tables() {
  return {kb::op_table<O>()...};
}

}  // namespace kitbash
