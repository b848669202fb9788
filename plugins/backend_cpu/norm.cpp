#include "norm.h"

#include "lanes.h"

namespace kb::cpu {
namespace {

int64_t width(const Call& c) { return c.dim(0, -1); }
int64_t rows_of(const Call& c, int64_t first) {
  const kb_type& t = c.in(0);
  return t.rank > 1 ? first * product(t, 1, t.rank - 1) : 1;
}
void check(const Call& c) {
  if (elements(c.in(1)) != width(c)) fail("w must have ", width(c), " elements but got ", elements(c.in(1)));
  if (c.in(1).dtype != c.in(0).dtype)
    fail("w must be ", dtype_name(c.in(0).dtype), " like x but got ", dtype_name(c.in(1).dtype));
}

// dw is gathered in pieces of rows, cut by shape alone: each adds up to 64 rows in the type, then in double.
constexpr int64_t kMostPieces = 16;
int64_t pieces(int64_t rows, int64_t n) {
  return std::min(pieces_of(rows * n, 32768, kMostPieces), std::max<int64_t>(1, rows));
}

}  // namespace

void RmsNormKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  check(c);
  const int64_t n = width(c), rows = rows_of(c, c.in(0).rank ? c.rows(c.in(0)) : 1);
  floats(c.in(0).dtype, [&]<class T>() {
    c.parallel(rows, std::max<int64_t>(1, kGrain / n), [&](int64_t b, int64_t e, int32_t) {
      rms_norm_lanes(c.get<T>(0) + b * n, c.get<T>(1), c.put<T>(0) + b * n, e - b, n, o.eps);
    });
  });
}

uint64_t RmsNormBackwardKernel::workspace(const Call& c, const Op&) {
  const int64_t n = width(c), rows = rows_of(c, c.in(0).rank ? c.in(0).shape[0] : 1);
  return uint64_t(pieces(rows, n) * n) * (sizeof(double) + sizeof(double));
}

void RmsNormBackwardKernel::launch(const Call& c, const Op& o) {
  const bool dx = c.wanted(0), dw = c.wanted(1);
  if (!dx && !dw) return;
  check(c);
  const int64_t n = width(c), rows = rows_of(c, c.in(0).rank ? c.rows(c.in(0)) : 1);
  const int64_t count = pieces(rows, n), each = ceil_div(rows, count);
  floats(c.in(0).dtype, [&]<class T>() {
    double* total = c.workspace<double>();              // [pieces, n]
    T* part = reinterpret_cast<T*>(total + count * n);  // [pieces, n]
    const auto run = [&](int64_t from, int64_t to, T* weight) {
      rms_norm_backward_lanes(c.get<T>(0) + from * n, c.get<T>(1), c.get<T>(2) + from * n,
                              dx ? c.put<T>(0) + from * n : nullptr, weight, to - from, n, o.eps);
    };
    c.parallel(count, 1, [&](int64_t b, int64_t e, int32_t) {
      for (int64_t p = b; p < e; ++p) {
        const int64_t end = std::min(rows, (p + 1) * each);
        if (!dw) {
          if (p * each < end) run(p * each, end, nullptr);
          continue;
        }
        std::fill(total + p * n, total + (p + 1) * n, 0.0);
        for (int64_t r = p * each; r < end; r += 64) {
          std::fill(part + p * n, part + (p + 1) * n, T(0));
          run(r, std::min(end, r + 64), part + p * n);
          for (int64_t i = p * n; i < (p + 1) * n; ++i) total[i] += double(part[i]);
        }
      }
    });
    if (!dw) return;
    T* out = c.put<T>(1);
    for (int64_t i = 0; i < n; ++i) {
      double s = 0;
      for (int64_t p = 0; p < count; ++p) s += total[p * n + i];
      out[i] = T(c.adds(1) ? double(out[i]) + s : s);
    }
  });
}

}  // namespace kb::cpu
