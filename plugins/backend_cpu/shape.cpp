#include "shape.h"

#include "strided.h"

namespace kb::cpu {
namespace {

void same_elements(const Call& c) {
  if (!c.wanted(0)) return;
  if (c.in(0).dtype != c.out(0).dtype || elements(c.in(0)) != elements(c.out(0)))
    fail("the result must have ", elements(c.in(0)), " elements of ", dtype_name(c.in(0).dtype), " but got ",
         elements(c.out(0)), " of ", dtype_name(c.out(0).dtype));
  const int64_t n = c.in(0).extent ? used(c, c.in(0)) : used(c, c.out(0));
  copy_bytes(c, c.put<void>(0), c.get<void>(0), n * width_of(c.in(0).dtype));
}

// A tensor as [outer, width, inner] around an axis, inner in bytes; only the rows in use.
struct Around {
  int64_t outer, width, inner;
};
Around around(const Call& c, const kb_type& t, int axis) {
  return {axis ? c.rows(t) * product(t, 1, axis) : 1, t.shape[axis], product(t, axis + 1, t.rank) * width_of(t.dtype)};
}

// Copies `bytes` from each of `outer` places to another.
void copy_blocks(const Call& c, int64_t outer, char* to, int64_t to_step, const char* from, int64_t from_step,
                 int64_t bytes) {
  if (outer == 1) return copy_bytes(c, to, from, bytes);
  c.parallel(outer, std::max<int64_t>(1, 65536 / std::max<int64_t>(1, bytes)), [&](int64_t b, int64_t e, int32_t) {
    for (int64_t i = b; i < e; ++i) std::memcpy(to + i * to_step, from + i * from_step, size_t(bytes));
  });
}

void check_span(const char* what, int64_t begin, int64_t n, int64_t width) {
  if (begin < 0 || n < 0 || begin + n > width)
    fail(what, " must lie in [0, ", width, ") but got [", begin, ", ", begin + n, ")");
}

}  // namespace

void ReshapeKernel::launch(const Call& c, const Op&) { same_elements(c); }
void CopyKernel::launch(const Call& c, const Op&) { same_elements(c); }
void DetachKernel::launch(const Call& c, const Op&) { same_elements(c); }
void AllReduceKernel::launch(const Call& c, const Op&) { same_elements(c); }

void SliceKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  const int axis = normal_axis(o.axis, c.in(0).rank);
  const Around x = around(c, c.in(0), axis);
  const int64_t n = c.out(0).shape[axis];
  check_span("slice", o.begin, n, x.width);
  copy_blocks(c, x.outer, c.put<char>(0), n * x.inner, c.get<char>(0) + o.begin * x.inner, x.width * x.inner,
              n * x.inner);
}

void UnsliceKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  const int axis = normal_axis(o.axis, c.in(0).rank);
  const Around y = around(c, c.out(0), axis);
  const int64_t n = c.in(0).shape[axis], before = o.begin * y.inner, own = n * y.inner;
  check_span("unslice", o.begin, n, y.width);
  const int64_t after = (y.width - o.begin - n) * y.inner, step = y.width * y.inner;
  const char* from = c.get<char>(0);
  char* to = c.put<char>(0);
  if (y.outer == 1) {
    clear_bytes(c, to, before), copy_bytes(c, to + before, from, own), clear_bytes(c, to + before + own, after);
    return;
  }
  c.parallel(y.outer, std::max<int64_t>(1, 65536 / std::max<int64_t>(1, step)), [&](int64_t b, int64_t e, int32_t) {
    for (int64_t i = b; i < e; ++i) {
      char* row = to + i * step;
      std::memset(row, 0, size_t(before));
      std::memcpy(row + before, from + i * own, size_t(own));
      std::memset(row + before + own, 0, size_t(after));
    }
  });
}

void ConcatKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  const int axis = normal_axis(o.axis, c.out(0).rank);
  const Around y = around(c, c.out(0), axis);
  int64_t at = 0;
  for (uint32_t i = 0; i < c.n_in(); ++i) {
    if (!c.has(i)) continue;
    const int64_t n = c.in(i).shape[axis] * y.inner;
    check_span("concat", at / std::max<int64_t>(1, y.inner), c.in(i).shape[axis], y.width);
    copy_blocks(c, y.outer, c.put<char>(0) + at, y.width * y.inner, c.get<char>(i), n, n);
    at += n;
  }
}

void BroadcastKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  const kb_type& t = c.out(0);
  const Walk<1> w = broadcast_walk<1>(t, t.rank ? c.rows(t) : 1, {&c.in(0)});
  const int64_t n = w.inner(), step = w.step[0][w.rank - 1];
  if (n == 0) return;
  bits(t.dtype, [&]<class T>() {
    const T* x = c.get<T>(0);
    T* y = c.put<T>(0);
    const auto fill = [&](const T* from, T* to, int64_t m) {
      if (step)
        std::memcpy(to, from, size_t(m) * sizeof(T));
      else
        std::fill(to, to + m, *from);
    };
    if (w.rows() == 1)
      return c.parallel(n, kGrain, [&](int64_t b, int64_t e, int32_t) { fill(x + b * step, y + b, e - b); });
    c.parallel(w.rows(), std::max<int64_t>(1, kGrain / n), [&](int64_t b, int64_t e, int32_t) {
      w.runs(b, e, [&](int64_t r, int64_t count, const std::array<int64_t, 1>& at) {
        for (int64_t k = 0; k < count; ++k) fill(x + at[0] + k * w.row_step(0), y + (r + k) * n, n);
      });
    });
  });
}

}  // namespace kb::cpu
