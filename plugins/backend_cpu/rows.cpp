#include "rows.h"

#include "lanes.h"
#include "shape.h"

namespace kb::cpu {

void check_rows(const char* what, const int32_t* at, int64_t n, int64_t rows, bool absent_allowed) {
  const int32_t least = absent_allowed ? -1 : 0;
  for (int64_t i = 0; i < n; ++i)
    if (at[i] < least || at[i] >= rows) fail(what, " ", i, " must be in [", least, ", ", rows, ") but got ", at[i]);
}

void GatherKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  const kb_type& x = c.in(0);
  const int64_t m = std::min(c.rows(c.in(1)), c.rows(c.out(0))), width = product(x, 1, x.rank) * width_of(x.dtype);
  const int32_t* rows = c.get<int32_t>(1);
  check_rows("row", rows, m, x.shape[0], true);
  const char* from = c.get<char>(0);
  char* to = c.put<char>(0);
  c.parallel(m, std::max<int64_t>(1, 32768 / std::max<int64_t>(1, width)), [&](int64_t b, int64_t e, int32_t) {
    for (int64_t i = b; i < e; ++i) {
      if (rows[i] < 0)
        std::memset(to + i * width, 0, size_t(width));
      else
        std::memcpy(to + i * width, from + rows[i] * width, size_t(width));
    }
  });
}

void ScatterAddKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  const kb_type &x = c.in(0), &y = c.out(0);
  const int64_t m = std::min(c.rows(x), c.rows(c.in(1))), width = product(x, 1, x.rank);
  const int32_t* rows = c.get<int32_t>(1);
  check_rows("row", rows, m, y.shape[0], true);
  if (!c.adds(0)) clear_bytes(c, c.put<void>(0), elements(y) * width_of(y.dtype));
  floats(x.dtype, [&]<class T>() {
    const T* from = c.get<T>(0);
    T* to = c.put<T>(0);
    // Each worker owns columns, so that a row of y sees its addends in order.
    const int64_t grain = std::max<int64_t>(32, ceil_div(kGrain, std::max<int64_t>(1, m)));
    c.parallel(width, grain, [&](int64_t b, int64_t e, int32_t) {
      for (int64_t i = 0; i < m; ++i)
        if (rows[i] >= 0) add_lanes(to + rows[i] * width + b, from + i * width + b, e - b);
    });
  });
}

void TakeKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  const int64_t width = c.dim(0, -1), k = c.dim(1, -1), n = used(c, c.out(0));
  const int32_t* ids = c.get<int32_t>(1);
  check_rows("id", ids, n, width, false);
  bits(c.in(0).dtype, [&]<class T>() {
    c.parallel(n, kGrain, [&](int64_t b, int64_t e, int32_t) {
      for (int64_t i = b; i < e; ++i) c.put<T>(0)[i] = c.get<T>(0)[i / k * width + ids[i]];
    });
  });
}

void UntakeKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  const int64_t width = c.out(0).shape[c.out(0).rank - 1], k = c.dim(1, -1), n = used(c, c.in(0));
  const int32_t* ids = c.get<int32_t>(1);
  check_rows("id", ids, n, width, false);
  bits(c.in(0).dtype, [&]<class T>() {
    const int64_t rows = used(c, c.out(0)) / std::max<int64_t>(1, width), with = k ? n / k : 0;
    c.parallel(rows, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, width)), [&](int64_t b, int64_t e, int32_t) {
      for (int64_t r = b; r < e; ++r) {
        T* y = c.put<T>(0) + r * width;
        std::fill(y, y + width, T(0));
        for (int64_t j = 0; r < with && j < k; ++j) y[ids[r * k + j]] = c.get<T>(0)[r * k + j];
      }
    });
  });
}

}  // namespace kb::cpu
