#include "pointwise.h"

#include <cmath>

#include "lanes.h"
#include "strided.h"

namespace kb::cpu {
namespace {

void same_type(const Call& c) {
  if (c.in(0).dtype != c.out(0).dtype)
    fail("the result must have the operand's type, ", dtype_name(c.in(0).dtype), ", but got ",
         dtype_name(c.out(0).dtype));
}
void unary(const Call& c, Unary f, int64_t grain, double mul = 1, double add = 0) {
  if (!c.wanted(0)) return;
  same_type(c);
  floats(c.out(0).dtype, [&]<class T>() {
    const T* x = c.get<T>(0);
    T* y = c.put<T>(0);
    c.parallel(used(c, c.out(0)), grain,
               [&](int64_t b, int64_t e, int32_t) { unary_lanes(f, x + b, y + b, e - b, mul, add); });
  });
}

// n elements of x in steps, as double.
void load_as_double(uint32_t dtype, const void* x, int64_t at, int64_t step, double* to, int64_t n) {
  floats(dtype, [&]<class S>() {
    const S* from = static_cast<const S*>(x) + at;
    for (int64_t i = 0; i < n; ++i) to[i] = double(from[i * step]);
  });
}

template <class T>
void binary_same(const Call& c, Binary f, const Walk<2>& w) {
  const T *a = c.get<T>(0), *b = c.get<T>(1);
  T* y = c.put<T>(0);
  const int64_t n = w.inner(), rows = w.rows();
  const int64_t sa = w.step[0][w.rank - 1], sb = w.step[1][w.rank - 1];
  if (rows == 1)
    return c.parallel(n, kGrain, [&](int64_t from, int64_t to, int32_t) {
      binary_lanes<T>(f, {a + from * sa, 0, sa}, {b + from * sb, 0, sb}, y + from, 1, to - from);
    });
  c.parallel(rows, std::max<int64_t>(1, kGrain / n), [&](int64_t from, int64_t to, int32_t) {
    w.runs(from, to, [&](int64_t r, int64_t count, const std::array<int64_t, 2>& at) {
      binary_lanes<T>(f, {a + at[0], w.row_step(0), sa}, {b + at[1], w.row_step(1), sb}, y + r * n, count, n);
    });
  });
}

double plain(Binary f, double a, double b) {
  switch (f) {
    case Binary::add:
      return a + b;
    case Binary::sub:
      return a - b;
    case Binary::mul:
      return a * b;
    case Binary::div:
      return a / b;
    case Binary::minimum:
      return a < b ? a : b;
    case Binary::maximum:
      return a > b ? a : b;
    case Binary::less:
      return a < b;
  }
  return 0;
}

// Operands of two float types: both become double, a block at a time.
template <class T>
void binary_mixed(const Call& c, Binary f, const Walk<2>& w) {
  T* y = c.put<T>(0);
  const int64_t n = w.inner();
  c.parallel(w.rows(), std::max<int64_t>(1, kGrain / n), [&](int64_t from, int64_t to, int32_t) {
    constexpr int64_t block = 256;
    double a[block], b[block];
    w.runs(from, to, [&](int64_t r, int64_t count, const std::array<int64_t, 2>& at) {
      for (int64_t k = 0; k < count; ++k)
        for (int64_t i = 0; i < n; i += block) {
          const int64_t m = std::min(block, n - i), sa = w.step[0][w.rank - 1], sb = w.step[1][w.rank - 1];
          load_as_double(c.in(0).dtype, c.c->in[0].data, at[0] + k * w.row_step(0) + i * sa, sa, a, m);
          load_as_double(c.in(1).dtype, c.c->in[1].data, at[1] + k * w.row_step(1) + i * sb, sb, b, m);
          for (int64_t j = 0; j < m; ++j) y[(r + k) * n + i + j] = T(plain(f, a[j], b[j]));
        }
    });
  });
}

void binary(const Call& c, Binary f) {
  if (!c.wanted(0)) return;
  const kb_type &t = c.out(0), &a = c.in(0), &b = c.in(1);
  const Walk<2> w = broadcast_walk<2>(t, t.rank ? c.rows(t) : 1, {&a, &b});
  if (w.rows() * w.inner() == 0) return;
  const bool equal = a.dtype == t.dtype && b.dtype == t.dtype;
  if (equal && t.dtype == KB_F32) return binary_same<float>(c, f, w);
  if (equal && t.dtype == KB_F64) return binary_same<double>(c, f, w);
  if (equal && t.dtype == KB_I32 && f != Binary::div) return binary_same<int32_t>(c, f, w);
  floats(t.dtype, [&]<class T>() { binary_mixed<T>(c, f, w); });
}

template <class F>
void scalar_map(const Call& c, F&& f) {
  if (!c.wanted(0)) return;
  same_type(c);
  floats(c.out(0).dtype, [&]<class T>() {
    const T* x = c.get<T>(0);
    T* y = c.put<T>(0);
    c.parallel(used(c, c.out(0)), kMathGrain, [&](int64_t b, int64_t e, int32_t) {
      for (int64_t i = b; i < e; ++i) y[i] = f(x[i]);
    });
  });
}

}  // namespace

void AffineKernel::launch(const Call& c, const Op& o) {
  if (c.in(0).dtype == KB_F32 || c.in(0).dtype == KB_F64) return unary(c, Unary::affine, kGrain, o.mul, o.add);
  if (!c.wanted(0)) return;
  same_type(c);
  numbers(c.out(0).dtype, [&]<class T>() {
    for (int64_t i = 0, n = used(c, c.out(0)); i < n; ++i) c.put<T>(0)[i] = T(o.mul * double(c.get<T>(0)[i]) + o.add);
  });
}
void ExpKernel::launch(const Call& c, const Op&) { unary(c, Unary::exp, kMathGrain); }
void LogKernel::launch(const Call& c, const Op&) { unary(c, Unary::log, kMathGrain); }
void SigmoidKernel::launch(const Call& c, const Op&) { unary(c, Unary::sigmoid, kMathGrain); }
void TanhKernel::launch(const Call& c, const Op&) { unary(c, Unary::tanh, kMathGrain); }
void SoftplusKernel::launch(const Call& c, const Op&) { unary(c, Unary::softplus, kMathGrain); }
void RsqrtKernel::launch(const Call& c, const Op&) { unary(c, Unary::rsqrt, kMathGrain); }
void SqrtKernel::launch(const Call& c, const Op&) { unary(c, Unary::sqrt, kMathGrain); }
void SinKernel::launch(const Call& c, const Op&) { unary(c, Unary::sin, kMathGrain); }
void CosKernel::launch(const Call& c, const Op&) { unary(c, Unary::cos, kMathGrain); }
void ErfKernel::launch(const Call& c, const Op&) {
  scalar_map(c, [](auto x) { return std::erf(x); });
}
void FloorKernel::launch(const Call& c, const Op&) { unary(c, Unary::floor, kGrain); }
void IsFiniteKernel::launch(const Call& c, const Op&) {
  if (c.wanted(0) && c.in(0).dtype == c.out(0).dtype && (c.in(0).dtype == KB_F32 || c.in(0).dtype == KB_F64))
    return unary(c, Unary::is_finite, kGrain);
  if (!c.wanted(0)) return;
  numbers(c.in(0).dtype, [&]<class S>() {
    numbers(c.out(0).dtype, [&]<class T>() {
      for (int64_t i = 0, n = used(c, c.out(0)); i < n; ++i) c.put<T>(0)[i] = T(std::isfinite(double(c.get<S>(0)[i])));
    });
  });
}
void AddKernel::launch(const Call& c, const Op&) { binary(c, Binary::add); }
void SubKernel::launch(const Call& c, const Op&) { binary(c, Binary::sub); }
void MulKernel::launch(const Call& c, const Op&) { binary(c, Binary::mul); }
void DivKernel::launch(const Call& c, const Op&) { binary(c, Binary::div); }
void MinimumKernel::launch(const Call& c, const Op&) { binary(c, Binary::minimum); }
void MaximumKernel::launch(const Call& c, const Op&) { binary(c, Binary::maximum); }
void LessKernel::launch(const Call& c, const Op&) { binary(c, Binary::less); }

}  // namespace kb::cpu
