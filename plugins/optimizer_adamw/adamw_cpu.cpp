// One pass over four arrays, limited by memory: seven streams of one vector each.
#include "adamw_step.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "adamw_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace adamw {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
HWY_INLINE void span(const AdamwFactors& f, T by, const T* w, const T* g, const T* m, const T* v, int64_t n, T* w2,
                     T* m2, T* v2) {
  const hn::ScalableTag<T> d;
  const auto scale = hn::Set(d, by);
  const auto b1 = hn::Set(d, T(f.beta1)), a1 = hn::Set(d, T(1 - f.beta1)), b2 = hn::Set(d, T(f.beta2));
  const auto a2 = hn::Set(d, T(1 - f.beta2)), eps = hn::Set(d, T(f.eps)), mean = hn::Set(d, T(f.mean));
  const auto square = hn::Set(d, T(f.square)), rate = hn::Set(d, T(f.rate)), decay = hn::Set(d, T(f.decay));
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto x = hn::LoadU(d, w + i), y = hn::Mul(scale, hn::LoadU(d, g + i));
    const auto mm = hn::MulAdd(a1, y, hn::Mul(b1, hn::LoadU(d, m + i)));
    const auto vv = hn::MulAdd(hn::Mul(a2, y), y, hn::Mul(b2, hn::LoadU(d, v + i)));
    const auto step = hn::Div(hn::Mul(mm, mean), hn::Add(hn::Sqrt(hn::Mul(vv, square)), eps));
    hn::StoreU(mm, d, m2 + i);
    hn::StoreU(vv, d, v2 + i);
    hn::StoreU(hn::NegMulAdd(rate, hn::MulAdd(decay, x, step), x), d, w2 + i);
  }
  for (; i < n; ++i) {
    const T y = by * g[i];
    const T mm = T(1 - f.beta1) * y + T(f.beta1) * m[i], vv = T(1 - f.beta2) * y * y + T(f.beta2) * v[i];
    const T step = mm * T(f.mean) / (std::sqrt(vv * T(f.square)) + T(f.eps));
    m2[i] = mm, v2[i] = vv;
    w2[i] = w[i] - T(f.rate) * (step + T(f.decay) * w[i]);
  }
}
void span_f32(const AdamwFactors& f, float by, const float* w, const float* g, const float* m, const float* v,
              int64_t n, float* w2, float* m2, float* v2) {
  span(f, by, w, g, m, v, n, w2, m2, v2);
}
void span_f64(const AdamwFactors& f, double by, const double* w, const double* g, const double* m, const double* v,
              int64_t n, double* w2, double* m2, double* v2) {
  span(f, by, w, g, m, v, n, w2, m2, v2);
}

}  // namespace HWY_NAMESPACE
}  // namespace adamw
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace adamw {
HWY_EXPORT(span_f32);
HWY_EXPORT(span_f64);
}  // namespace adamw

void AdamwCpu::launch(const kb::Call& c, const AdamwStep& op) {
  kb::floats(c.in(0).dtype, [&]<class T>() {
    const AdamwFactors f(op, double(*c.get<T>(4)), double(*c.get<T>(5)));
    const T by = c.has(6) ? *c.get<T>(6) : T(1);
    const T *w = c.get<T>(0), *g = c.get<T>(1), *m = c.get<T>(2), *v = c.get<T>(3);
    T *w2 = c.put<T>(0), *m2 = c.put<T>(1), *v2 = c.put<T>(2);
    if (!w2 || !m2 || !v2) kb::fail("w, m and v are one step: all three outputs must be wanted");
    c.parallel(kb::elements(c.in(0)), 1 << 14, [&](int64_t b, int64_t e, int32_t) {
      if constexpr (sizeof(T) == 4)
        HWY_DYNAMIC_DISPATCH(adamw::span_f32)(f, by, w + b, g + b, m + b, v + b, e - b, w2 + b, m2 + b, v2 + b);
      else
        HWY_DYNAMIC_DISPATCH(adamw::span_f64)(f, by, w + b, g + b, m + b, v + b, e - b, w2 + b, m2 + b, v2 + b);
    });
  });
}
#endif
