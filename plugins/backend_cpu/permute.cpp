// permute.cpp: axes in another order. Runs that stay whole are copied; else the axis that is contiguous in the input
// and the one that is contiguous in the output are walked in tiles that fit the first cache.
#include "shape.h"
#include "strided.h"

namespace kb::cpu {
namespace {

// y[i * y_step + j] = x[i + j * x_step], i in [from, to), j in [0, n). A tile is read and written whole line by whole
// line: strides that are powers of two would evict a line before its other elements are needed.
template <class T>
void tiles(const T* x, int64_t x_step, T* y, int64_t y_step, int64_t from, int64_t to, int64_t n) {
  constexpr int64_t side = 16;
  T part[side][side];
  for (int64_t j0 = 0; j0 < n; j0 += side) {
    const int64_t wide = std::min(side, n - j0), high = to - from;
    for (int64_t j = 0; j < wide; ++j)
      for (int64_t i = 0; i < high; ++i) part[i][j] = x[from + i + (j0 + j) * x_step];
    for (int64_t i = 0; i < high; ++i) std::copy_n(part[i], wide, y + (from + i) * y_step + j0);
  }
}

}  // namespace

void PermuteKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  const kb_type &x = c.in(0), &y = c.out(0);
  if (o.axes.n != x.rank) fail("axes must name ", x.rank, " axes but has ", o.axes.n);
  int64_t stride[KB_MAX_RANK], s = 1;
  for (int d = x.rank - 1; d >= 0; --d) stride[d] = s, s *= x.shape[d];
  Walk<1> w;
  for (int d = 0; d < y.rank; ++d) w.push(d == 0 ? c.rows(y) : y.shape[d], {stride[normal_axis(o.axes.at[d], x.rank)]});
  w.finish();
  const int last = w.rank - 1;
  const int64_t n = w.size[last], step = w.step[0][last];
  if (n == 0 || w.rows() == 0) return;
  bits(y.dtype, [&]<class T>() {
    const T* from = c.get<T>(0);
    T* to = c.put<T>(0);
    if (w.rank == 1 && step <= 1) return copy_bytes(c, to, from, n * int64_t(sizeof(T)));
    if (step == 1)
      return c.parallel(w.rows(), std::max<int64_t>(1, kGrain / n), [&](int64_t b, int64_t e, int32_t) {
        w.runs(b, e, [&](int64_t r, int64_t count, const std::array<int64_t, 1>& at) {
          for (int64_t k = 0; k < count; ++k)
            std::memcpy(to + (r + k) * n, from + at[0] + k * w.row_step(0), size_t(n) * sizeof(T));
        });
      });
    int fast = 0;  // the axis that is contiguous in the input
    for (int d = 0; d < last; ++d)
      if (w.step[0][d] < w.step[0][fast]) fast = d;
    if (w.step[0][fast] != 1 || w.rank == 1) {  // cut rows of axis 0 can leave none: element by element
      w.runs(0, w.rows(), [&](int64_t r, int64_t count, const std::array<int64_t, 1>& at) {
        for (int64_t k = 0; k < count; ++k)
          for (int64_t j = 0; j < n; ++j) to[(r + k) * n + j] = from[at[0] + k * w.row_step(0) + j * step];
      });
      return;
    }
    int64_t y_step = 1, y_stride[KB_MAX_RANK];
    for (int d = last; d >= 0; --d) y_stride[d] = y_step, y_step *= w.size[d];
    int64_t others = 1;
    for (int d = 0; d < last; ++d) others *= d == fast ? 1 : w.size[d];
    const int64_t m = w.size[fast], cut = ceil_div(m, 16);  // pieces: 16 rows of one transposed block
    c.parallel(others * cut, std::max<int64_t>(1, kGrain / (16 * n)), [&](int64_t b, int64_t e, int32_t) {
      for (int64_t p = b; p < e; ++p) {
        int64_t rest = p / cut, at_x = 0, at_y = 0;
        for (int d = last - 1; d >= 0; --d) {
          if (d == fast) continue;
          at_x += rest % w.size[d] * w.step[0][d], at_y += rest % w.size[d] * y_stride[d];
          rest /= w.size[d];
        }
        const int64_t i = p % cut * 16;
        tiles(from + at_x, step, to + at_y, y_stride[fast], i, std::min(m, i + 16), n);
      }
    });
  });
}

}  // namespace kb::cpu
