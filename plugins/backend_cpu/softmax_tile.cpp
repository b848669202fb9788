#include "softmax_tile.h"

#include <algorithm>
#include <limits>

#include "lanes_setup.h"
#define HWY_TARGET_INCLUDE "softmax_tile.cpp"
#include "hwy/foreach_target.h"

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "lanes_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kb::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// e^x for x that is no more than a rounding above 0, within 1 ulp; Highway's is 0 for NaN, which would hide a broken
// model.
template <class D, class V>
HWY_INLINE V exp_down(D d, V x) {
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(d, x));
}

template <class T>
void tile_any(T* HWY_RESTRICT s, int64_t keys, int64_t columns, T* HWY_RESTRICT peak, T* HWY_RESTRICT sum,
              T* HWY_RESTRICT shrink) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int64_t c = 0; c < columns; c += lanes) {
    const auto old = hn::LoadU(d, peak + c);
    auto m0 = old, m1 = old;
    int64_t r = 0;
    for (; r + 2 <= keys; r += 2) {
      m0 = hn::Max(m0, hn::LoadU(d, s + r * kTileColumns + c));
      m1 = hn::Max(m1, hn::LoadU(d, s + (r + 1) * kTileColumns + c));
    }
    if (r < keys) m0 = hn::Max(m0, hn::LoadU(d, s + r * kTileColumns + c));
    const auto top = hn::Max(m0, m1);
    const auto less = exp_down(d, hn::Sub(old, top));
    auto z0 = hn::Mul(hn::LoadU(d, sum + c), less), z1 = hn::Zero(d);
    for (r = 0; r + 2 <= keys; r += 2) {
      T *x = s + r * kTileColumns + c, *y = x + kTileColumns;
      const auto p = exp_down(d, hn::Sub(hn::LoadU(d, x), top)), q = exp_down(d, hn::Sub(hn::LoadU(d, y), top));
      hn::StoreU(p, d, x), hn::StoreU(q, d, y);
      z0 = hn::Add(z0, p), z1 = hn::Add(z1, q);
    }
    if (r < keys) {
      T* x = s + r * kTileColumns + c;
      const auto p = exp_down(d, hn::Sub(hn::LoadU(d, x), top));
      hn::StoreU(p, d, x);
      z0 = hn::Add(z0, p);
    }
    hn::StoreU(top, d, peak + c), hn::StoreU(hn::Add(z0, z1), d, sum + c), hn::StoreU(less, d, shrink + c);
  }
}

template <class T>
void scale_any(T* HWY_RESTRICT x, int64_t rows, int64_t columns, const T* HWY_RESTRICT by) {
  const hn::ScalableTag<T> d;
  for (int64_t r = 0; r < rows; ++r, x += kTileColumns)
    for (int64_t c = 0; c < columns; c += int64_t(hn::Lanes(d)))
      hn::StoreU(hn::Mul(hn::LoadU(d, x + c), hn::LoadU(d, by + c)), d, x + c);
}

template <class T>
void backward_any(T* HWY_RESTRICT s, T* HWY_RESTRICT dp, int64_t keys, int64_t columns, const T* HWY_RESTRICT lse,
                  const T* HWY_RESTRICT delta, T scale) {
  const hn::ScalableTag<T> d;
  const auto by = hn::Set(d, scale);
  for (int64_t r = 0; r < keys; ++r, s += kTileColumns, dp += kTileColumns)
    for (int64_t c = 0; c < columns; c += int64_t(hn::Lanes(d))) {
      const auto p = exp_down(d, hn::Sub(hn::LoadU(d, s + c), hn::LoadU(d, lse + c)));
      hn::StoreU(p, d, s + c);
      hn::StoreU(hn::Mul(hn::Mul(by, p), hn::Sub(hn::LoadU(d, dp + c), hn::LoadU(d, delta + c))), d, dp + c);
    }
}

template <class T>
T dot_any(const T* a, const T* b, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  auto s = hn::Zero(d);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) s = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), s);
  if (i < n) s = hn::MulAdd(load_part(d, a + i, size_t(n - i)), load_part(d, b + i, size_t(n - i)), s);
  return hn::GetLane(hn::SumOfLanes(d, s));
}

template <class T>
T max_any(const T* x, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  T top = -std::numeric_limits<T>::infinity();
  auto m = hn::Set(d, top);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) m = hn::Max(m, hn::LoadU(d, x + i));
  top = hn::GetLane(hn::MaxOfLanes(d, m));
  for (; i < n; ++i) top = std::max(top, x[i]);
  return top;
}

template <class T>
double exp_any(const T* x, int64_t n, T peak, T* y) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), run = 32 * lanes;  // lanes add up 32 numbers in T, the rest is double
  const auto shift = hn::Set(d, peak);
  double total = 0;
  int64_t i = 0;
  while (i + lanes <= n) {
    auto s = hn::Zero(d);
    for (const int64_t end = std::min(n, i + run); i + lanes <= end; i += lanes) {
      const auto p = exp_down(d, hn::Sub(hn::LoadU(d, x + i), shift));
      if (y) hn::StoreU(p, d, y + i);
      s = hn::Add(s, p);
    }
    total += double(hn::GetLane(hn::SumOfLanes(d, s)));
  }
  if (i < n) {
    const size_t rest = size_t(n - i);
    const auto p = exp_down(d, hn::Sub(load_part(d, x + i, rest), shift));
    if (y) store_part(p, d, y + i, rest);
    total += double(hn::GetLane(hn::SumOfLanes(d, hn::IfThenElseZero(hn::FirstN(d, rest), p))));
  }
  return total;
}

template <class T>
void scaled_exp_any(const T* x, int64_t n, T lse, T scale, T* y) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const auto shift = hn::Set(d, lse), by = hn::Set(d, scale);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::Mul(by, exp_down(d, hn::Sub(hn::LoadU(d, x + i), shift))), d, y + i);
  if (i < n) {
    const size_t rest = size_t(n - i);
    store_part(hn::Mul(by, exp_down(d, hn::Sub(load_part(d, x + i, rest), shift))), d, y + i, rest);
  }
}

#define KB_FOR_TYPE(T, id)                                                                     \
  void tile_##id(T* s, int64_t k, int64_t c, T* p, T* z, T* a) { tile_any(s, k, c, p, z, a); } \
  void scale_##id(T* x, int64_t r, int64_t c, const T* by) { scale_any(x, r, c, by); }         \
  void backward_##id(T* s, T* dp, int64_t k, int64_t c, const T* l, const T* e, T by) {        \
    backward_any(s, dp, k, c, l, e, by);                                                       \
  }                                                                                            \
  T dot_##id(const T* a, const T* b, int64_t n) { return dot_any(a, b, n); }                   \
  T max_##id(const T* x, int64_t n) { return max_any(x, n); }                                  \
  double exp_##id(const T* x, int64_t n, T peak, T* y) { return exp_any(x, n, peak, y); }      \
  void scaled_exp_##id(const T* x, int64_t n, T l, T by, T* y) { scaled_exp_any(x, n, l, by, y); }
KB_FOR_TYPE(float, f32)
KB_FOR_TYPE(double, f64)
#undef KB_FOR_TYPE

}  // namespace kb::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kb::cpu {
#define KB_FOR_TYPE(T, id)                                                                      \
  HWY_EXPORT(tile_##id);                                                                        \
  HWY_EXPORT(scale_##id);                                                                       \
  HWY_EXPORT(backward_##id);                                                                    \
  HWY_EXPORT(dot_##id);                                                                         \
  HWY_EXPORT(max_##id);                                                                         \
  HWY_EXPORT(exp_##id);                                                                         \
  HWY_EXPORT(scaled_exp_##id);                                                                  \
  template <>                                                                                   \
  void softmax_tile(T* s, int64_t k, int64_t c, T* p, T* z, T* a) {                             \
    HWY_DYNAMIC_DISPATCH(tile_##id)(s, k, c, p, z, a);                                          \
  }                                                                                             \
  template <>                                                                                   \
  void scale_columns(T* x, int64_t r, int64_t c, const T* by) {                                 \
    HWY_DYNAMIC_DISPATCH(scale_##id)(x, r, c, by);                                              \
  }                                                                                             \
  template <>                                                                                   \
  void softmax_tile_backward(T* s, T* dp, int64_t k, int64_t c, const T* l, const T* e, T by) { \
    HWY_DYNAMIC_DISPATCH(backward_##id)(s, dp, k, c, l, e, by);                                 \
  }                                                                                             \
  template <>                                                                                   \
  T dot_row(const T* a, const T* b, int64_t n) {                                                \
    return HWY_DYNAMIC_DISPATCH(dot_##id)(a, b, n);                                             \
  }                                                                                             \
  template <>                                                                                   \
  T max_row(const T* x, int64_t n) {                                                            \
    return HWY_DYNAMIC_DISPATCH(max_##id)(x, n);                                                \
  }                                                                                             \
  template <>                                                                                   \
  double exp_row(const T* x, int64_t n, T peak, T* y) {                                         \
    return HWY_DYNAMIC_DISPATCH(exp_##id)(x, n, peak, y);                                       \
  }                                                                                             \
  template <>                                                                                   \
  void scaled_exp_row(const T* x, int64_t n, T l, T by, T* y) {                                 \
    HWY_DYNAMIC_DISPATCH(scaled_exp_##id)(x, n, l, by, y);                                      \
  }
KB_FOR_TYPE(float, f32)
KB_FOR_TYPE(double, f64)
#undef KB_FOR_TYPE
}  // namespace kb::cpu
#endif  // HWY_ONCE
