// lanes_binary.cpp: functions of two operands on rows that may repeat or broadcast one element.
#include "lanes.h"
#include "lanes_setup.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lanes_binary.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h:
#include "lanes_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kb::cpu::HWY_NAMESPACE {
namespace {  // other files of this library have names of their own here

template <class T, class F>
HWY_INLINE void map2(Rows<T> a, Rows<T> b, T* y, int64_t rows, int64_t n, const F& f) {
  const hn::ScalableTag<T> d;
  const auto loop = [&](const auto& left, const auto& right) HWY_ATTR {
    for (int64_t r = 0; r < rows; ++r) {
      const T *pa = a.at + r * a.row, *pb = b.at + r * b.row;
      T* to = y + r * n;
      each(
          d, n, [&](int64_t i) HWY_ATTR { hn::StoreU(f(left(pa, i, 0), right(pb, i, 0)), d, to + i); },
          [&](int64_t i, size_t k) HWY_ATTR { store_part(f(left(pa, i, k), right(pb, i, k)), d, to + i, k); });
    }
  };
  const auto vector = [&](const T* p, int64_t i, size_t k)
                          HWY_ATTR { return k ? load_part(d, p + i, k) : hn::LoadU(d, p + i); };
  const auto scalar = [&](const T* p, int64_t, size_t) HWY_ATTR { return hn::Set(d, *p); };
  if (a.step && b.step) return loop(vector, vector);
  if (a.step) return loop(vector, scalar);
  if (b.step) return loop(scalar, vector);
  return loop(scalar, scalar);
}

// Minimum and maximum of equal or unordered operands: a < b ? a : b, a > b ? a : b.
#define KB_MAP2(EXPR) return map2(a, b, y, rows, n, [](auto u, auto v) HWY_ATTR { return EXPR; })
template <class T>
void binary(Binary f, Rows<T> a, Rows<T> b, T* y, int64_t rows, int64_t n) {
  switch (f) {
    case Binary::add:
      KB_MAP2(hn::Add(u, v));
    case Binary::sub:
      KB_MAP2(hn::Sub(u, v));
    case Binary::mul:
      KB_MAP2(hn::Mul(u, v));
    case Binary::div:
      if constexpr (hwy::IsFloat<T>()) KB_MAP2(hn::Div(u, v));
      return;
    case Binary::minimum:
      KB_MAP2(hn::IfThenElse(hn::Lt(u, v), u, v));
    case Binary::maximum:
      KB_MAP2(hn::IfThenElse(hn::Gt(u, v), u, v));
    case Binary::less: {
      const hn::ScalableTag<T> d;
      return map2(a, b, y, rows, n,
                  [=](auto u, auto v) HWY_ATTR { return hn::IfThenElseZero(hn::Lt(u, v), hn::Set(d, T(1))); });
    }
  }
}
void binary_f(Binary f, Rows<float> a, Rows<float> b, float* y, int64_t rows, int64_t n) {
  binary(f, a, b, y, rows, n);
}
void binary_d(Binary f, Rows<double> a, Rows<double> b, double* y, int64_t rows, int64_t n) {
  binary(f, a, b, y, rows, n);
}
void binary_i(Binary f, Rows<int32_t> a, Rows<int32_t> b, int32_t* y, int64_t rows, int64_t n) {
  binary(f, a, b, y, rows, n);
}

}  // namespace
}  // namespace kb::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kb::cpu {
HWY_EXPORT(binary_f);
HWY_EXPORT(binary_d);
HWY_EXPORT(binary_i);
template <>
void binary_lanes(Binary f, Rows<float> a, Rows<float> b, float* y, int64_t rows, int64_t n) {
  HWY_DYNAMIC_DISPATCH(binary_f)(f, a, b, y, rows, n);
}
template <>
void binary_lanes(Binary f, Rows<double> a, Rows<double> b, double* y, int64_t rows, int64_t n) {
  HWY_DYNAMIC_DISPATCH(binary_d)(f, a, b, y, rows, n);
}
template <>
void binary_lanes(Binary f, Rows<int32_t> a, Rows<int32_t> b, int32_t* y, int64_t rows, int64_t n) {
  HWY_DYNAMIC_DISPATCH(binary_i)(f, a, b, y, rows, n);
}
}  // namespace kb::cpu
#endif
