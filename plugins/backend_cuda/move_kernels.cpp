#include "move_kernels.h"

#include "move_cuda.h"

namespace kb::cuda::element {
namespace {

// Bytes that may move together: the largest power of two up to 16 that divides all of `bytes` and both addresses.
int unit_of(std::initializer_list<int64_t> bytes, const void* a, const void* b) {
  uint64_t all = 16 | uint64_t(reinterpret_cast<uintptr_t>(a)) | uint64_t(reinterpret_cast<uintptr_t>(b));
  for (int64_t n : bytes) all |= uint64_t(n);
  return int(all & (~all + 1));
}

void like(const Call& c) {
  if (c.in(0).dtype != c.out(0).dtype || elements(c.in(0)) != elements(c.out(0)))
    fail("the result must have ", elements(c.in(0)), " elements of ", dtype_name(c.in(0).dtype), " but got ",
         elements(c.out(0)), " of ", dtype_name(c.out(0).dtype));
}
void copy_all(const Call& c) {
  if (!c.wanted(0) || c.get<void>(0) == c.put<void>(0)) return;
  const int64_t bytes = elements(c.in(0)) * width_of(c.in(0).dtype);
  if (bytes)
    check(cudaMemcpyAsync(c.put<void>(0), c.get<void>(0), size_t(bytes), cudaMemcpyDeviceToDevice, stream(c)),
          "a copy");
}
void same_width(const Call& c) {
  if (c.in(0).dtype != c.out(0).dtype)
    fail("the result must be ", dtype_name(c.in(0).dtype), " like the operand but got ", dtype_name(c.out(0).dtype));
}

// A tensor as [outer, width, inner] around an axis, inner in bytes.
struct Around {
  int64_t outer, width, inner;
};
Around around(const kb_type& t, int axis) {
  return {product(t, 0, axis), t.shape[axis], product(t, axis + 1, t.rank) * width_of(t.dtype)};
}
void check_span(const char* what, int64_t begin, int64_t n, int64_t width) {
  if (begin < 0 || n < 0 || begin + n > width)
    fail(what, " must lie in [0, ", width, ") but got [", begin, ", ", begin + n, ")");
}
// Copies `bytes` from each of `outer` places to another.
void copy_blocks(const Call& c, int64_t outer, char* to, int64_t to_step, const char* from, int64_t from_step,
                 int64_t bytes) {
  if (outer <= 1) to_step = from_step = 0;
  const int u = unit_of({bytes, to_step, from_step}, to, from);
  move_blocks(u, outer, bytes / u, to, to_step / u, from, from_step / u, stream(c));
  launched();
}

}  // namespace

#define KB_COPY(T)                                                \
  void T##Kernel::supports(const Call& c, const Op&) { like(c); } \
  void T##Kernel::launch(const Call& c, const Op&) { copy_all(c); }
KB_COPY(Reshape)
KB_COPY(Copy)
KB_COPY(Detach)
KB_COPY(AllReduce)
#undef KB_COPY

void SliceKernel::supports(const Call& c, const Op&) { same_width(c); }
void SliceKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  const int axis = normal_axis(o.axis, c.in(0).rank);
  const Around x = around(c.in(0), axis);
  const int64_t n = c.out(0).shape[axis];
  check_span("slice", o.begin, n, x.width);
  copy_blocks(c, x.outer, c.put<char>(0), n * x.inner, c.get<char>(0) + o.begin * x.inner, x.width * x.inner,
              n * x.inner);
}

void UnsliceKernel::supports(const Call& c, const Op&) { same_width(c); }
void UnsliceKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  const int axis = normal_axis(o.axis, c.in(0).rank);
  const Around y = around(c.out(0), axis);
  const int64_t n = c.in(0).shape[axis], before = o.begin * y.inner, own = n * y.inner, width = y.width * y.inner;
  check_span("unslice", o.begin, n, y.width);
  const int u = unit_of({before, own, width}, c.get<void>(0), c.put<void>(0));
  move_into_zeros(u, y.outer, width / u, before / u, own / u, c.get<void>(0), c.put<void>(0), stream(c));
  launched();
}

void ConcatKernel::supports(const Call& c, const Op&) { same_width(c); }
void ConcatKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  const int axis = normal_axis(o.axis, c.out(0).rank);
  const Around y = around(c.out(0), axis);
  int64_t at = 0;
  for (uint32_t i = 0; i < c.n_in(); ++i) {
    if (!c.has(i)) continue;
    const int64_t n = c.in(i).shape[axis];
    check_span("concat", at, n, y.width);
    copy_blocks(c, y.outer, c.put<char>(0) + at * y.inner, y.width * y.inner, c.get<char>(i), n * y.inner, n * y.inner);
    at += n;
  }
}

namespace {
// A walk over the result: rows that both sides have in one piece move in the largest units.
void run_walk(const Call& c, const WalkMaker<1>& w) {
  const int64_t e = width_of(c.out(0).dtype);
  int u = int(e);
  if (w.inner_step(0) == 1) {
    uint64_t all = uint64_t(w.inner() * e);
    for (int d = 0; d + 1 < w.rank(); ++d) all |= uint64_t(w.step(0, d) * e);
    u = unit_of({int64_t(all)}, c.get<void>(0), c.put<void>(0));
    if (u < e) u = int(e);
  }
  Walk<1> walk = w.make(u / e);
  for (int d = 0; d < walk.outer; ++d) walk.step[0][d] /= u / e;
  walk.inner_step[0] /= u / e;
  move_walk(u, c.get<void>(0), c.put<void>(0), walk, stream(c));
  launched();
}
}  // namespace

void BroadcastKernel::supports(const Call& c, const Op&) { same_width(c); }
void BroadcastKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  const kb_type* in[1] = {&c.in(0)};
  run_walk(c, broadcast_walk<1>(c.out(0), in));
}

void PermuteKernel::supports(const Call& c, const Op& o) {
  same_width(c);
  if (o.axes.n != c.in(0).rank) fail("axes must name all ", c.in(0).rank, " axes but names ", o.axes.n);
}
void PermuteKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  const kb_type &x = c.in(0), &y = c.out(0);
  int64_t x_step[KB_MAX_RANK], s = 1;
  for (int d = x.rank - 1; d >= 0; --d) x_step[d] = s, s *= x.shape[d];
  WalkMaker<1> w;
  for (int d = 0; d < y.rank; ++d) w.push(y.shape[d], {x_step[o.axes.at[d]]});
  // The axis that is innermost in x, where it is not so in y: tiles of the two, the other axes one after the other.
  int a = -1;
  for (int d = 0; d + 1 < w.rank(); ++d)
    if (w.step(0, d) == 1) a = d;
  if (a < 0 || w.inner_step(0) == 1) return run_walk(c, w);
  const int b = w.rank() - 1;
  int64_t y_step = 1;
  Transposition t{w.size(a), w.size(b), w.step(0, b), 1};
  WalkMaker<2> batch;
  for (int d = b; d > a; --d) t.y_step *= w.size(d);
  for (int d = 0; d < b; ++d) {
    y_step = 1;
    for (int k = b; k > d; --k) y_step *= w.size(k);
    if (d != a) batch.push(w.size(d), {w.step(0, d), y_step});
  }
  move_transposed(int(width_of(y.dtype)), c.get<void>(0), c.put<void>(0), t, batch.make(1), stream(c));
  launched();
}

void GatherKernel::supports(const Call& c, const Op&) { same_width(c); }
void GatherKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  const kb_type& x = c.in(0);
  const int64_t width = product(x, 1, x.rank) * width_of(x.dtype);
  const int u = unit_of({width}, c.get<void>(0), c.put<void>(0));
  gather(u, c.get<void>(0), x.shape[0], c.get<int32_t>(1), std::min(c.dim(1, 0), c.out(0).shape[0]),
         rows_in_use(c, c.in(1)), width / u, c.put<void>(0), stream(c));
  launched();
}

void TakeKernel::supports(const Call& c, const Op&) { same_width(c); }
void TakeKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  const int64_t k = c.dim(1, -1);
  take(int(width_of(c.in(0).dtype)), c.get<void>(0), c.dim(0, -1), c.get<int32_t>(1), k ? elements(c.in(1)) / k : 0, k,
       c.put<void>(0), stream(c));
  launched();
}

void UntakeKernel::supports(const Call& c, const Op&) { same_width(c); }
void UntakeKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  const int64_t k = c.dim(1, -1), bytes = elements(c.out(0)) * width_of(c.out(0).dtype);
  if (bytes) check(cudaMemsetAsync(c.put<void>(0), 0, size_t(bytes), stream(c)), "clearing");
  untake(int(width_of(c.in(0).dtype)), c.get<void>(0), c.get<int32_t>(1), k ? elements(c.in(1)) / k : 0, k,
         c.out(0).shape[c.out(0).rank - 1], c.put<void>(0), stream(c));
  launched();
}

}  // namespace kb::cuda::element
