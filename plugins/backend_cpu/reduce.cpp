#include "reduce.h"

#include <cmath>

#include "lanes.h"

namespace kb::cpu {
namespace {

constexpr int64_t kBlock = 1 << 16;  // numbers of a long sum that one piece takes
constexpr int64_t kTile = 512;  // columns that a piece of column sums gathers at once: they stay in the first cache

int64_t row_pieces(const Middle& m) { return m.outer >= 16 ? 1 : pieces_of(m.width, kBlock, 1 << 20); }
int64_t column_pieces(const Middle& m) {
  return m.outer >= 16 ? 1 : pieces_of(m.width * m.inner, kBlock / 2, std::clamp<int64_t>(m.width, 1, 16));
}

template <class Out>
void store(Out& y, double v, bool add) {
  y = Out(add ? double(y) + v : v);
}

// Sums of columns [from, to) of rows x; total [to - from] is overwritten.
template <class In>
void column_sums(const In* x, int64_t rows, int64_t stride, int64_t from, int64_t to, double* total) {
  In part[kTile];
  for (int64_t c = from; c < to; c += kTile) {
    const int64_t n = std::min(kTile, to - c);
    double* t = total + (c - from);
    std::fill(t, t + n, 0.0);
    for (int64_t r = 0; r < rows; r += 64) {
      const int64_t end = std::min(rows, r + 64);
      std::copy_n(x + r * stride + c, n, part);
      for (int64_t k = r + 1; k < end; ++k) add_lanes(part, x + k * stride + c, n);
      for (int64_t i = 0; i < n; ++i) t[i] += double(part[i]);
    }
  }
}

}  // namespace

int64_t sum_middle_room(const Middle& m) {
  if (m.inner == 1) return m.outer * row_pieces(m);
  return m.outer * column_pieces(m) * m.inner;
}

template <class In, class Out>
void sum_middle(const Call& c, const In* x, const Middle& m, Out* y, bool add, double* room) {
  const int64_t outer = m.outer, width = m.width, inner = m.inner;  // clang 14 captures no structured binding
  if (inner == 1) {
    const int64_t pieces = row_pieces(m), each = ceil_div(width, pieces);
    const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, std::min(width, each)));
    c.parallel(outer * pieces, grain, [&](int64_t b, int64_t e, int32_t) {
      for (int64_t i = b; i < e; ++i) {
        const int64_t from = std::min(width, i % pieces * each), n = std::min(each, width - from);
        const double s = sum_lanes(x + i / pieces * width + from, n);
        if (pieces == 1)
          store(y[i], s, add);
        else
          room[i] = s;
      }
    });
    for (int64_t o = 0; pieces > 1 && o < outer; ++o) {
      double s = 0;
      for (int64_t p = 0; p < pieces; ++p) s += room[o * pieces + p];
      store(y[o], s, add);
    }
    return;
  }
  const int64_t pieces = column_pieces(m), each = ceil_div(width, pieces);
  c.parallel(outer * pieces, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, each * inner)),
             [&](int64_t b, int64_t e, int32_t) {
               for (int64_t i = b; i < e; ++i) {
                 const int64_t from = std::min(width, i % pieces * each), n = std::min(each, width - from);
                 column_sums(x + (i / pieces * width + from) * inner, n, inner, 0, inner, room + i * inner);
               }
             });
  c.parallel(outer * inner, kGrain, [&](int64_t b, int64_t e, int32_t) {
    for (int64_t i = b; i < e; ++i) {
      const double* part = room + i / inner * pieces * inner + i % inner;
      double s = 0;
      for (int64_t p = 0; p < pieces; ++p) s += part[p * inner];
      store(y[i], s, add);
    }
  });
}
template void sum_middle(const Call&, const float*, const Middle&, float*, bool, double*);
template void sum_middle(const Call&, const float*, const Middle&, double*, bool, double*);
template void sum_middle(const Call&, const double*, const Middle&, float*, bool, double*);
template void sum_middle(const Call&, const double*, const Middle&, double*, bool, double*);

namespace {
// The reduced axis as a Middle, its rows in use: `bounds` for what memory is planned for.
Middle middle_of(const Call& c, const kb_type& t, int64_t axis, bool bounds) {
  const int a = normal_axis(axis, t.rank);
  Middle m{product(t, 0, a), t.shape[a], product(t, a + 1, t.rank)};
  if (bounds) return m;
  if (a == 0)
    m.width = c.rows(t);
  else
    m.outer = c.rows(t) * product(t, 1, a);
  return m;
}
}  // namespace

// With fewer rows in use a sum may be cut in more pieces than its bound is, but never needs more than this.
uint64_t SumKernel::workspace(const Call& c, const Op& o) {
  const Middle m = middle_of(c, c.in(0), o.axis, true);
  const Middle few{15, m.width, m.inner};
  return uint64_t(std::max(sum_middle_room(m), m.outer > 15 ? sum_middle_room(few) : 0)) * sizeof(double);
}

void SumKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  const Middle m = middle_of(c, c.in(0), o.axis, false);
  if (c.in(0).dtype == KB_I32 && c.out(0).dtype == KB_I32) {
    for (int64_t i = 0; i < m.outer * m.inner; ++i) {
      int64_t s = c.adds(0) ? c.put<int32_t>(0)[i] : 0;
      for (int64_t k = 0; k < m.width; ++k) s += c.get<int32_t>(0)[(i / m.inner * m.width + k) * m.inner + i % m.inner];
      c.put<int32_t>(0)[i] = int32_t(s);
    }
    return;
  }
  floats(c.in(0).dtype, [&]<class In>() {
    floats(c.out(0).dtype,
           [&]<class Out>() { sum_middle(c, c.get<In>(0), m, c.put<Out>(0), c.adds(0), c.workspace<double>()); });
  });
}

void AmaxKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  const Middle m = middle_of(c, c.in(0), o.axis, false);
  floats(c.in(0).dtype, [&]<class T>() {
    const T* x = c.get<T>(0);
    T* y = c.put<T>(0);
    if (m.inner == 1)
      return c.parallel(m.outer, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, m.width)),
                        [&](int64_t b, int64_t e, int32_t) {
                          for (int64_t i = b; i < e; ++i) y[i] = max_lanes(x + i * m.width, m.width);
                        });
    c.parallel(m.outer * m.inner, std::max<int64_t>(16, kGrain / std::max<int64_t>(1, m.width)),
               [&](int64_t b, int64_t e, int32_t) {
                 for (int64_t i = b; i < e;) {  // [i, i + n): columns of one outer index
                   const int64_t n = std::min({e - i, m.inner - i % m.inner, kTile});
                   std::fill(y + i, y + i + n, T(-INFINITY));
                   for (int64_t k = 0; k < m.width; ++k)
                     max_into_lanes(y + i, x + (i / m.inner * m.width + k) * m.inner + i % m.inner, n);
                   i += n;
                 }
               });
  });
}

uint64_t SquareSumKernel::workspace(const Call& c, const Op&) {
  int64_t most = 0;
  for (uint32_t k = 0; k < c.n_in(); ++k) most = std::max(most, elements(c.in(k)));
  return uint64_t(ceil_div(most, kBlock) + 1) * sizeof(double);
}
void SquareSumKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  double* part = c.workspace<double>();
  double s = 0;
  for (uint32_t k = 0; k < c.n_in(); ++k) {
    const int64_t n = used(c, c.in(k)), blocks = ceil_div(n, kBlock);
    floats(c.in(k).dtype, [&]<class T>() {
      const T* x = c.get<T>(k);
      c.parallel(blocks, 1, [&](int64_t b, int64_t e, int32_t) {
        for (int64_t i = b; i < e; ++i) part[i] = square_sum_lanes(x + i * kBlock, std::min(kBlock, n - i * kBlock));
      });
    });
    for (int64_t i = 0; i < blocks; ++i) s += part[i];
  }
  floats(c.out(0).dtype, [&]<class T>() { *c.put<T>(0) = T(s); });
}

void SoftmaxKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  const kb_type& t = c.in(0);
  const int64_t n = t.rank ? t.shape[t.rank - 1] : 1;
  const int64_t rows = t.rank > 1 ? c.rows(t) * product(t, 1, t.rank - 1) : 1;
  if (n == 0) return;
  floats(t.dtype, [&]<class T>() {
    c.parallel(rows, std::max<int64_t>(1, kMathGrain / n), [&](int64_t b, int64_t e, int32_t) {
      softmax_lanes(c.get<T>(0) + b * n, c.put<T>(0) + b * n, e - b, n);
    });
  });
}

}  // namespace kb::cpu
