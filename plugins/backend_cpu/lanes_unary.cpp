// lanes_unary.cpp: functions of one operand. Highway's polynomials, with what they leave out: NaN, infinities, large
// angles.
#include "lanes.h"
#include "lanes_setup.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lanes_unary.cpp"
#include <cmath>

#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h:
#include "hwy/contrib/math/math-inl.h"
#include "lanes_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kb::cpu::HWY_NAMESPACE {
namespace {  // other files of this library have names of their own here

template <class D, class V>
HWY_INLINE V nan_through(D, V x, V y) {
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}
template <class D, class V, class T = hn::TFromD<D>>
HWY_INLINE V exp_all(D d, V x) {  // past the clamp the result is infinity, which the polynomial then reaches by itself
  return nan_through(d, x, hn::Exp(d, hn::Min(x, hn::Set(d, T(sizeof(T) == 4 ? 100 : 720)))));
}
template <class D, class V, class T = hn::TFromD<D>>
HWY_INLINE V log_all(D d, V x) {
  const V inf = hn::Set(d, T(INFINITY)), zero = hn::Zero(d);
  V y = hn::Log(d, x);
  y = hn::IfThenElse(hn::Eq(x, inf), inf, y);
  y = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(inf), y);
  return nan_through(d, x, hn::IfThenElse(hn::Lt(x, zero), hn::Set(d, T(NAN)), y));
}
template <class D, class V, class T = hn::TFromD<D>>
HWY_INLINE V sigmoid_all(D d, V x) {  // e = exp(-|x|) cannot overflow: 1 / (1 + e), or e / (1 + e) for x < 0
  const V one = hn::Set(d, T(1)), e = hn::Exp(d, hn::Neg(hn::Abs(x)));
  return nan_through(d, x, hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e)));
}
template <class D, class V, class T = hn::TFromD<D>>
HWY_INLINE V softplus_all(D d, V x) {  // max(x, 0) + log1p(exp(-|x|))
  const V e = hn::Exp(d, hn::Neg(hn::Abs(x)));
  return nan_through(d, x, hn::Add(hn::Max(x, hn::Zero(d)), hn::Log1p(d, e)));
}
template <bool kSin, class D, class V, class T = hn::TFromD<D>>
HWY_INLINE V angle_all(D d, V x) {
  if (HWY_LIKELY(hn::AllTrue(d, hn::Le(hn::Abs(x), hn::Set(d, T(30000)))))) return kSin ? hn::Sin(d, x) : hn::Cos(d, x);
  HWY_ALIGN T t[hn::MaxLanes(d)];  // beyond the range that Highway reduces: the C library
  hn::Store(x, d, t);
  for (size_t i = 0; i < hn::Lanes(d); ++i) t[i] = kSin ? std::sin(t[i]) : std::cos(t[i]);
  return hn::Load(d, t);
}

template <class T, class F>
HWY_NOINLINE void map(const T* x, T* y, int64_t n, const F& f) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  HWY_ALIGN T part[hn::MaxLanes(d)] = {};
  for (; i < n; i += lanes) {  // one copy of f in the code: the tail goes through `part`
    const bool tail = n - i < lanes;
    if (tail) std::memcpy(part, x + i, size_t(n - i) * sizeof(T));
    const auto v = f(d, hn::LoadU(d, tail ? part : x + i));
    hn::StoreU(v, d, tail ? part : y + i);
    if (tail) std::memcpy(y + i, part, size_t(n - i) * sizeof(T));
  }
}

#define KB_MAP(EXPR)                                 \
  return map(x, y, n, [=](auto d, auto v) HWY_ATTR { \
    using E = hn::TFromD<decltype(d)>;               \
    (void)d, (void)sizeof(E);                        \
    return EXPR;                                     \
  })
template <class T>
void unary(Unary f, const T* x, T* y, int64_t n, double mul, double add) {
  switch (f) {
    case Unary::affine:
      KB_MAP(hn::MulAdd(hn::Set(d, E(mul)), v, hn::Set(d, E(add))));
    case Unary::exp:
      KB_MAP(exp_all(d, v));
    case Unary::log:
      KB_MAP(log_all(d, v));
    case Unary::sigmoid:
      KB_MAP(sigmoid_all(d, v));
    case Unary::tanh:
      KB_MAP(nan_through(d, v, hn::Tanh(d, v)));
    case Unary::softplus:
      KB_MAP(softplus_all(d, v));
    case Unary::rsqrt:
      KB_MAP(hn::Div(hn::Set(d, E(1)), hn::Sqrt(v)));
    case Unary::sqrt:
      KB_MAP(hn::Sqrt(v));
    case Unary::sin:
      KB_MAP(angle_all<true>(d, v));
    case Unary::cos:
      KB_MAP(angle_all<false>(d, v));
    case Unary::floor:
      KB_MAP(hn::Floor(v));
    case Unary::is_finite:
      KB_MAP(hn::IfThenElseZero(hn::Lt(hn::Abs(v), hn::Set(d, E(INFINITY))), hn::Set(d, E(1))));
  }
}
void unary_f(Unary f, const float* x, float* y, int64_t n, double mul, double add) { unary(f, x, y, n, mul, add); }
void unary_d(Unary f, const double* x, double* y, int64_t n, double mul, double add) { unary(f, x, y, n, mul, add); }

}  // namespace
}  // namespace kb::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kb::cpu {
HWY_EXPORT(unary_f);
HWY_EXPORT(unary_d);
template <>
void unary_lanes(Unary f, const float* x, float* y, int64_t n, double mul, double add) {
  HWY_DYNAMIC_DISPATCH(unary_f)(f, x, y, n, mul, add);
}
template <>
void unary_lanes(Unary f, const double* x, double* y, int64_t n, double mul, double add) {
  HWY_DYNAMIC_DISPATCH(unary_d)(f, x, y, n, mul, add);
}
}  // namespace kb::cpu
#endif
