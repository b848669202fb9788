#include "reduce_kernels.h"

#include <utility>

#include "reduce_cuda.h"

namespace kb::cuda::element {
namespace {

Middle middle_of(const kb_type& t, int64_t axis) {
  const int a = normal_axis(axis, t.rank);
  return {product(t, 0, a), t.shape[a], product(t, a + 1, t.rank)};
}
// The rows in use matter where axis 0 itself is reduced.
InUse in_use(const Call& c, int64_t axis) {
  if (normal_axis(axis, c.in(0).rank)) return {};
  return {rows_in_use(c, c.in(0)), 1};
}
void floats_like(const Call& c) { takes(c, {kFloats}), gives(c, {kFloats}); }

}  // namespace

void SumKernel::supports(const Call& c, const Op&) {
  takes(c, {kFloats | kIds}), gives(c, {kFloats | kIds});
  if ((c.in(0).dtype == KB_I32) != (c.out(0).dtype == KB_I32)) fail("a sum of i32 must be i32 on cuda");
}
uint64_t SumKernel::workspace(const Call& c, const Op& o) {
  return uint64_t(reduce_room(middle_of(c.in(0), o.axis))) * sizeof(float);
}
void SumKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  const Middle m = middle_of(c.in(0), o.axis);
  if (c.in(0).dtype == KB_I32)
    sum_integers(c.get<int32_t>(0), m, in_use(c, o.axis), c.put<int32_t>(0), c.adds(0), stream(c));
  else
    reduce_middle(Reduction::sum, c.get<void>(0), c.in(0).dtype, m, in_use(c, o.axis), c.put<void>(0), c.out(0).dtype,
                  c.adds(0), c.workspace<float>(), stream(c));
  launched();
}

void AmaxKernel::supports(const Call& c, const Op&) { floats_like(c); }
uint64_t AmaxKernel::workspace(const Call& c, const Op& o) {
  return uint64_t(reduce_room(middle_of(c.in(0), o.axis))) * sizeof(float);
}
void AmaxKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  reduce_middle(Reduction::max, c.get<void>(0), c.in(0).dtype, middle_of(c.in(0), o.axis), in_use(c, o.axis),
                c.put<void>(0), c.out(0).dtype, false, c.workspace<float>(), stream(c));
  launched();
}

namespace {
static_assert(kMostSquares == KB_MAX_IN);
Squares squares(const Call& c) {
  Squares s{};
  s.count = int(c.n_in());
  for (uint32_t i = 0; i < c.n_in(); ++i) s.x[i] = c.get<void>(i), s.n[i] = elements(c.in(i));
  return s;
}
}  // namespace
void SquareSumKernel::supports(const Call& c, const Op&) {
  floats_like(c);
  if (c.out(0).dtype != KB_F32) fail("the result must be f32 but is ", dtype_name(c.out(0).dtype));
  if (c.n_in() > kMostSquares) fail("takes at most ", kMostSquares, " tensors but got ", c.n_in());
}
uint64_t SquareSumKernel::workspace(const Call& c, const Op&) {
  return uint64_t(square_sums_room(squares(c))) * sizeof(float);
}
// Rows past an extent are zero, so they may count.
void SquareSumKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  square_sums(squares(c), c.in(0).dtype, c.put<float>(0), c.workspace<float>(), stream(c));
  launched();
}

void SoftmaxKernel::supports(const Call& c, const Op&) {
  floats_like(c);
  if (c.in(0).dtype != c.out(0).dtype) fail("the result must be ", dtype_name(c.in(0).dtype), " like the operand");
}
void SoftmaxKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  const kb_type& t = c.in(0);
  const int64_t n = t.rank ? t.shape[t.rank - 1] : 1;
  softmax(c.get<void>(0), c.put<void>(0), t.dtype, n ? elements(t) / n : 0, n, stream(c));
  launched();
}

// ---- sum_to: axes merge into runs that stay and runs that vanish; each vanishing run is summed, the innermost first.
namespace {

struct Run {
  int64_t size;
  bool gone;
  int64_t per_row;  // in the run that holds axis 0: elements of the run for one row; else 0
};
struct Runs {
  Run at[KB_MAX_RANK];
  int n = 0;
};

Runs runs_of(const kb_type& x, const kb_type& y) {
  Runs r;
  for (int d = 0; d < x.rank; ++d) {
    const int e = d - (x.rank - y.rank);
    const int64_t have = x.shape[d], want = e < 0 ? 1 : y.shape[e];
    if (want != 1 && want != have)
      fail("sum_to must keep ", have, " or give 1 on axis ", d, " but was asked for ", want);
    if (have == 1) continue;
    const bool gone = want == 1;
    if (r.n && r.at[r.n - 1].gone == gone)
      r.at[r.n - 1].size *= have, r.at[r.n - 1].per_row *= have;
    else
      r.at[r.n++] = {have, gone, d == 0 ? 1 : 0};
  }
  return r;
}
// Takes the last vanishing run away as [outer, width, inner]; false when none is left.
bool next_sum(Runs& r, Middle& m, int64_t& per_row) {
  int at = r.n - 1;
  while (at >= 0 && !r.at[at].gone) --at;
  if (at < 0) return false;
  m = {1, r.at[at].size, 1};
  per_row = r.at[at].per_row;
  for (int i = 0; i < at; ++i) m.outer *= r.at[i].size;
  for (int i = at + 1; i < r.n; ++i) m.inner *= r.at[i].size;
  for (int i = at; i + 1 < r.n; ++i) r.at[i] = r.at[i + 1];
  --r.n;
  return true;
}
// Floats of the largest intermediate result, and of the greediest step's room.
void sum_to_sizes(Runs r, int64_t& between, int64_t& room) {
  Middle m;
  int64_t per_row;
  between = room = 0;
  while (next_sum(r, m, per_row)) {
    room = std::max(room, reduce_room(m));
    bool more = false;
    for (int i = 0; i < r.n; ++i) more = more || r.at[i].gone;
    if (more) between = std::max(between, m.outer * m.inner);
  }
}

}  // namespace

void SumToKernel::supports(const Call& c, const Op&) { floats_like(c); }
uint64_t SumToKernel::workspace(const Call& c, const Op&) {
  int64_t between, room;
  sum_to_sizes(runs_of(c.in(0), c.out(0)), between, room);
  return uint64_t(2 * padded(between) + room) * sizeof(float);
}
void SumToKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  const kb_type& x = c.in(0);
  Runs r = runs_of(x, c.out(0));
  int64_t between, room_size, per_row;
  sum_to_sizes(r, between, room_size);
  float *spare = c.workspace<float>(), *other = spare + padded(between), *room = other + padded(between);
  const void* from = c.get<void>(0);
  uint32_t type = x.dtype;
  Middle m;
  if (!next_sum(r, m, per_row)) m = {elements(x), 1, 1}, per_row = 0;  // nothing vanishes: a copy that may add
  for (;;) {
    const InUse used{per_row ? rows_in_use(c, x) : nullptr, per_row};
    Runs rest = r;
    Middle next;
    int64_t next_per_row;
    const bool more = next_sum(rest, next, next_per_row);
    if (!more) {
      reduce_middle(Reduction::sum, from, type, m, used, c.put<void>(0), c.out(0).dtype, c.adds(0), room, stream(c));
      break;
    }
    reduce_middle(Reduction::sum, from, type, m, used, spare, KB_F32, false, room, stream(c));
    from = spare, type = KB_F32;
    std::swap(spare, other);
    m = next, per_row = next_per_row, r = rest;
  }
  launched();
}

}  // namespace kb::cuda::element
