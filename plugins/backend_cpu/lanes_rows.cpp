// lanes_rows.cpp: sums, maxima, softmax, short convolution, norms: loops over rows.
#include "lanes.h"
#include "lanes_setup.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lanes_rows.cpp"
#include <cmath>

#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// After highway.h:
#include "hwy/contrib/math/math-inl.h"
#include "lanes_tail-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kb::cpu::HWY_NAMESPACE {
namespace {  // other files of this library have names of their own here

template <class D>
HWY_INLINE double lane_sum(D d, hn::Vec<D> v) {
  return double(hn::GetLane(hn::SumOfLanes(d, v)));
}

// Sum of f(x) with four accumulators: a lane takes at most 64 numbers before it is added to the double.
template <class T, class F>
HWY_INLINE double gather_sum(const T* x, int64_t n, const F& f) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), block = 4 * lanes * 64;
  double total = 0;
  for (int64_t from = 0; from < n; from += block) {
    const int64_t to = HWY_MIN(n, from + block);
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    int64_t i = from;
    for (; i + 4 * lanes <= to; i += 4 * lanes) {
      s0 = f(hn::LoadU(d, x + i), s0), s1 = f(hn::LoadU(d, x + i + lanes), s1);
      s2 = f(hn::LoadU(d, x + i + 2 * lanes), s2), s3 = f(hn::LoadU(d, x + i + 3 * lanes), s3);
    }
    for (; i + lanes <= to; i += lanes) s0 = f(hn::LoadU(d, x + i), s0);
    if (i < to) s1 = f(load_part(d, x + i, size_t(to - i)), s1);
    total += lane_sum(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
  }
  return total;
}
template <class T>
double sum(const T* x, int64_t n) {
  return gather_sum(x, n, [](auto v, auto s) HWY_ATTR { return hn::Add(s, v); });
}
template <class T>
double square_sum(const T* x, int64_t n) {
  return gather_sum(x, n, [](auto v, auto s) HWY_ATTR { return hn::MulAdd(v, v, s); });
}

template <class T>
T max(const T* x, int64_t n) {
  const hn::ScalableTag<T> d;
  auto m = hn::Set(d, T(-INFINITY));
  T rest = T(-INFINITY);
  each(
      d, n,
      [&](int64_t i) HWY_ATTR {
        const auto v = hn::LoadU(d, x + i);
        m = hn::IfThenElse(hn::Gt(v, m), v, m);  // false for NaN
      },
      [&](int64_t i, size_t k) HWY_ATTR {
        for (size_t j = 0; j < k; ++j) rest = x[i + int64_t(j)] > rest ? x[i + int64_t(j)] : rest;
      });
  const T all = hn::GetLane(hn::MaxOfLanes(d, m));
  return all > rest ? all : rest;
}

template <class T, class F>
HWY_INLINE void into(T* y, const T* x, int64_t n, const F& f) {
  const hn::ScalableTag<T> d;
  each(
      d, n, [&](int64_t i) HWY_ATTR { hn::StoreU(f(hn::LoadU(d, y + i), hn::LoadU(d, x + i)), d, y + i); },
      [&](int64_t i, size_t k)
          HWY_ATTR { store_part(f(load_part(d, y + i, k), load_part(d, x + i, k)), d, y + i, k); });
}
template <class T>
void add(T* y, const T* x, int64_t n) {
  into(y, x, n, [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); });
}
template <class T>
void max_into(T* y, const T* x, int64_t n) {
  into(y, x, n, [](auto a, auto b) HWY_ATTR { return hn::IfThenElse(hn::Gt(b, a), b, a); });
}

// NaN, or no finite peak, makes the whole row NaN by itself.
template <class T>
void softmax(const T* x, T* y, int64_t rows, int64_t n) {
  const hn::ScalableTag<T> d;
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    const auto peak = hn::Set(d, max(x, n));
    const auto power = [&](auto v) HWY_ATTR {
      const auto z = hn::Sub(v, peak);
      return hn::IfThenElse(hn::IsNaN(z), z, hn::Exp(d, z));  // Highway's exponential of NaN is 0
    };
    auto s = hn::Zero(d);
    double tail = 0;
    each(
        d, n,
        [&](int64_t i) HWY_ATTR {
          const auto e = power(hn::LoadU(d, x + i));
          s = hn::Add(s, e);
          hn::StoreU(e, d, y + i);
        },
        [&](int64_t i, size_t k) HWY_ATTR {
          store_part(power(load_part(d, x + i, k)), d, y + i, k);
          for (size_t j = 0; j < k; ++j) tail += double(y[i + int64_t(j)]);
        });
    const auto scale = hn::Set(d, T(1 / (lane_sum(d, s) + tail)));
    each(
        d, n, [&](int64_t i) HWY_ATTR { hn::StoreU(hn::Mul(hn::LoadU(d, y + i), scale), d, y + i); },
        [&](int64_t i, size_t k) HWY_ATTR { store_part(hn::Mul(load_part(d, y + i, k), scale), d, y + i, k); });
  }
}

template <class T>
int64_t first_above(const T* x, int64_t from, int64_t n, T threshold) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const auto limit = hn::Set(d, threshold);
  int64_t i = from;
  for (; i + lanes <= n; i += lanes) {
    const intptr_t at = hn::FindFirstTrue(d, hn::Gt(hn::LoadU(d, x + i), limit));
    if (at >= 0) return i + at;
  }
  for (; i < n; ++i)
    if (x[i] > threshold) return i;
  return n;
}

template <class T>
void conv(const T* const* x, const T* w, T* y, int64_t taps, int64_t channels) {
  const hn::ScalableTag<T> d;
  each(
      d, channels,
      [&](int64_t i) HWY_ATTR {
        auto s = hn::Zero(d);
        for (int64_t j = 0; j < taps; ++j)
          s = hn::MulAdd(hn::LoadU(d, w + j * channels + i), hn::LoadU(d, x[j] + i), s);
        hn::StoreU(s, d, y + i);
      },
      [&](int64_t i, size_t k) HWY_ATTR {
        auto s = hn::Zero(d);
        for (int64_t j = 0; j < taps; ++j)
          s = hn::MulAdd(load_part(d, w + j * channels + i, k), load_part(d, x[j] + i, k), s);
        store_part(s, d, y + i, k);
      });
}
template <class T>
void conv_weight(const T* const* x, const T* dy, T* acc, int64_t stride, int64_t taps, int64_t channels) {
  const hn::ScalableTag<T> d;
  each(
      d, channels,
      [&](int64_t i) HWY_ATTR {
        const auto g = hn::LoadU(d, dy + i);
        for (int64_t j = 0; j < taps; ++j) {
          T* to = acc + j * stride + i;
          hn::StoreU(hn::MulAdd(hn::LoadU(d, x[j] + i), g, hn::LoadU(d, to)), d, to);
        }
      },
      [&](int64_t i, size_t k) HWY_ATTR {
        const auto g = load_part(d, dy + i, k);
        for (int64_t j = 0; j < taps; ++j) {
          T* to = acc + j * stride + i;
          store_part(hn::MulAdd(load_part(d, x[j] + i, k), g, load_part(d, to, k)), d, to, k);
        }
      });
}

template <class T>
void rms_norm(const T* x, const T* w, T* y, int64_t rows, int64_t n, double eps) {
  const hn::ScalableTag<T> d;
  for (int64_t r = 0; r < rows; ++r, x += n, y += n) {
    const auto scale = hn::Set(d, T(1 / std::sqrt(square_sum(x, n) / double(n) + eps)));
    each(
        d, n,
        [&](int64_t i)
            HWY_ATTR { hn::StoreU(hn::Mul(hn::LoadU(d, w + i), hn::Mul(hn::LoadU(d, x + i), scale)), d, y + i); },
        [&](int64_t i, size_t k) HWY_ATTR {
          store_part(hn::Mul(load_part(d, w + i, k), hn::Mul(load_part(d, x + i, k), scale)), d, y + i, k);
        });
  }
}
// With g = w dy: dx = r g - x r^3 (x . g) / n; dw += dy x r.
template <class T>
void rms_norm_backward(const T* x, const T* w, const T* dy, T* dx, T* dw, int64_t rows, int64_t n, double eps) {
  const hn::ScalableTag<T> d;
  for (int64_t row = 0; row < rows; ++row, x += n, dy += n) {
    auto squares = hn::Zero(d), dots = hn::Zero(d), squares2 = squares, dots2 = dots;
    const auto gather = [&](auto vx, auto vw, auto vg, auto& s, auto& t) HWY_ATTR {
      s = hn::MulAdd(vx, vx, s);
      t = hn::MulAdd(vx, hn::Mul(vw, vg), t);
    };
    const int64_t lanes = int64_t(hn::Lanes(d));
    int64_t i = 0;
    for (; i + 2 * lanes <= n; i += 2 * lanes) {
      gather(hn::LoadU(d, x + i), hn::LoadU(d, w + i), hn::LoadU(d, dy + i), squares, dots);
      gather(hn::LoadU(d, x + i + lanes), hn::LoadU(d, w + i + lanes), hn::LoadU(d, dy + i + lanes), squares2, dots2);
    }
    for (; i < n; i += lanes) {
      const size_t k = size_t(HWY_MIN(n - i, lanes));
      gather(load_part(d, x + i, k), load_part(d, w + i, k), load_part(d, dy + i, k), squares, dots);
    }
    const double r = 1 / std::sqrt(lane_sum(d, hn::Add(squares, squares2)) / double(n) + eps);
    const auto a = hn::Set(d, T(r)), b = hn::Set(d, T(-r * r * r * lane_sum(d, hn::Add(dots, dots2)) / double(n)));
    if (dx) {
      each(
          d, n,
          [&](int64_t j) HWY_ATTR {
            const auto g = hn::Mul(hn::LoadU(d, w + j), hn::LoadU(d, dy + j));
            hn::StoreU(hn::MulAdd(a, g, hn::Mul(b, hn::LoadU(d, x + j))), d, dx + j);
          },
          [&](int64_t j, size_t k) HWY_ATTR {
            const auto g = hn::Mul(load_part(d, w + j, k), load_part(d, dy + j, k));
            store_part(hn::MulAdd(a, g, hn::Mul(b, load_part(d, x + j, k))), d, dx + j, k);
          });
      dx += n;
    }
    if (dw)
      each(
          d, n,
          [&](int64_t j) HWY_ATTR {
            const auto xr = hn::Mul(hn::LoadU(d, x + j), a);
            hn::StoreU(hn::MulAdd(xr, hn::LoadU(d, dy + j), hn::LoadU(d, dw + j)), d, dw + j);
          },
          [&](int64_t j, size_t k) HWY_ATTR {
            const auto xr = hn::Mul(load_part(d, x + j, k), a);
            store_part(hn::MulAdd(xr, load_part(d, dy + j, k), load_part(d, dw + j, k)), d, dw + j, k);
          });
  }
}

// Plain functions for the dispatch tables, float and double of each.
#define KB_BOTH(R, NAME, PARAMS, ARGS)           \
  R NAME##_f PARAMS(float) { return NAME ARGS; } \
  R NAME##_d PARAMS(double) { return NAME ARGS; }
#define P_SUM(T) (const T* x, int64_t n)
#define P_INTO(T) (T * y, const T* x, int64_t n)
#define P_SOFTMAX(T) (const T* x, T* y, int64_t rows, int64_t n)
#define P_ABOVE(T) (const T* x, int64_t from, int64_t n, T threshold)
#define P_CONV(T) (const T* const* x, const T* w, T* y, int64_t taps, int64_t channels)
#define P_CONV_W(T) (const T* const* x, const T* dy, T* acc, int64_t stride, int64_t taps, int64_t channels)
#define P_NORM(T) (const T* x, const T* w, T* y, int64_t rows, int64_t n, double eps)
#define P_NORM_B(T) (const T* x, const T* w, const T* dy, T* dx, T* dw, int64_t rows, int64_t n, double eps)
KB_BOTH(double, sum, P_SUM, (x, n))
KB_BOTH(double, square_sum, P_SUM, (x, n))
float max_f(const float* x, int64_t n) { return max(x, n); }
double max_d(const double* x, int64_t n) { return max(x, n); }
KB_BOTH(void, add, P_INTO, (y, x, n))
KB_BOTH(void, max_into, P_INTO, (y, x, n))
KB_BOTH(void, softmax, P_SOFTMAX, (x, y, rows, n))
KB_BOTH(int64_t, first_above, P_ABOVE, (x, from, n, threshold))
KB_BOTH(void, conv, P_CONV, (x, w, y, taps, channels))
KB_BOTH(void, conv_weight, P_CONV_W, (x, dy, acc, stride, taps, channels))
KB_BOTH(void, rms_norm, P_NORM, (x, w, y, rows, n, eps))
KB_BOTH(void, rms_norm_backward, P_NORM_B, (x, w, dy, dx, dw, rows, n, eps))
#undef KB_BOTH

}  // namespace
}  // namespace kb::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kb::cpu {
#define KB_EXPORT_BOTH(R, NAME, PARAMS, ARGS)   \
  HWY_EXPORT(NAME##_f);                         \
  HWY_EXPORT(NAME##_d);                         \
  template <>                                   \
  R NAME##_lanes PARAMS(float) {                \
    return HWY_DYNAMIC_DISPATCH(NAME##_f) ARGS; \
  }                                             \
  template <>                                   \
  R NAME##_lanes PARAMS(double) {               \
    return HWY_DYNAMIC_DISPATCH(NAME##_d) ARGS; \
  }
KB_EXPORT_BOTH(double, sum, P_SUM, (x, n))
KB_EXPORT_BOTH(double, square_sum, P_SUM, (x, n))
KB_EXPORT_BOTH(void, add, P_INTO, (y, x, n))
KB_EXPORT_BOTH(void, max_into, P_INTO, (y, x, n))
KB_EXPORT_BOTH(void, softmax, P_SOFTMAX, (x, y, rows, n))
KB_EXPORT_BOTH(int64_t, first_above, P_ABOVE, (x, from, n, threshold))
KB_EXPORT_BOTH(void, conv, P_CONV, (x, w, y, taps, channels))
KB_EXPORT_BOTH(void, conv_weight, P_CONV_W, (x, dy, acc, stride, taps, channels))
KB_EXPORT_BOTH(void, rms_norm, P_NORM, (x, w, y, rows, n, eps))
KB_EXPORT_BOTH(void, rms_norm_backward, P_NORM_B, (x, w, dy, dx, dw, rows, n, eps))
HWY_EXPORT(max_f);
HWY_EXPORT(max_d);
template <>
float max_lanes(const float* x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(max_f)(x, n);
}
template <>
double max_lanes(const double* x, int64_t n) {
  return HWY_DYNAMIC_DISPATCH(max_d)(x, n);
}
}  // namespace kb::cpu
#endif
