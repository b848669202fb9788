// lanes.h: loops over contiguous numbers, vectorised by Highway for the machine they run on. T is float or double.
// Every result depends on the arguments alone, so that splitting rows over threads changes no bit.
#pragma once
#include <cstdint>

namespace kb::cpu {

enum class Unary : uint32_t { affine, exp, log, sigmoid, tanh, softplus, rsqrt, sqrt, sin, cos, floor, is_finite };
enum class Binary : uint32_t { add, sub, mul, div, minimum, maximum, less };

// y[i] = f(x[i]); y may be x. mul and add: for affine alone. Accurate to 4 ulp; right at infinities and NaN.
template <class T>
void unary_lanes(Unary f, const T* x, T* y, int64_t n, double mul = 1, double add = 0);

// Rows of one operand: `row` elements from a row to the next; step 1: an element each, 0: one element for the whole
// row.
template <class T>
struct Rows {
  const T* at;
  int64_t row, step;
};
// y[r, i] = f(a[r, i], b[r, i]), y dense; y may be a dense operand. T may be int32_t too (no div).
template <class T>
void binary_lanes(Binary f, Rows<T> a, Rows<T> b, T* y, int64_t rows, int64_t n);

template <class T>
double sum_lanes(const T* x, int64_t n);  // blocks of 64 adds a lane in T, then double
template <class T>
double square_sum_lanes(const T* x, int64_t n);  // squares in T's width, gathered like sum
template <class T>
T max_lanes(const T* x, int64_t n);  // -inf when empty; NaN counts nowhere
template <class T>
void add_lanes(T* y, const T* x, int64_t n);  // y += x
template <class T>
void max_into_lanes(T* y, const T* x, int64_t n);  // y = max(y, x); NaN in x counts nowhere
template <class T>
void softmax_lanes(const T* x, T* y, int64_t rows, int64_t n);
// First index in [from, n) with x[i] > threshold, or n.
template <class T>
int64_t first_above_lanes(const T* x, int64_t from, int64_t n, T threshold);

// y[c] = sum over j of w[j, c] x[j][c]: one token of a short convolution; w [taps, channels].
template <class T>
void conv_lanes(const T* const* x, const T* w, T* y, int64_t taps, int64_t channels);
// acc[j, c] += x[j][c] dy[c]; acc: `stride` elements a tap.
template <class T>
void conv_weight_lanes(const T* const* x, const T* dy, T* acc, int64_t stride, int64_t taps, int64_t channels);

// y = w x rsqrt(mean x^2 + eps), row by row; w has n elements.
template <class T>
void rms_norm_lanes(const T* x, const T* w, T* y, int64_t rows, int64_t n, double eps);
// dx (or NULL) per row; dw (or NULL, [n]) += the rows' share.
template <class T>
void rms_norm_backward_lanes(const T* x, const T* w, const T* dy, T* dx, T* dw, int64_t rows, int64_t n, double eps);

}  // namespace kb::cpu
