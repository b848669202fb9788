// cast.h: between any two types. To bf16 by round to nearest even (NaN stays NaN); to integers by truncation, out of
// range values at the ends of the range, NaN 0.
#pragma once
#include <bit>
#include <cmath>
#include <limits>

#include "element_kernel.h"

namespace kb::cpu {

struct Bf16 {
  uint16_t bits;
};
inline float bf16_to_float(Bf16 v) { return std::bit_cast<float>(uint32_t(v.bits) << 16); }
inline Bf16 float_to_bf16(float x) {
  const uint32_t b = std::bit_cast<uint32_t>(x);
  if ((b & 0x7fffffffu) > 0x7f800000u) return {uint16_t(b >> 16 | 0x40)};  // quiet NaN
  return {uint16_t((b + 0x7fffu + (b >> 16 & 1)) >> 16)};
}
// Not by way of the nearest float: two roundings to nearest differ from one at ties. Round to odd first.
inline Bf16 double_to_bf16(double x) {
  float f = float(x);
  const uint32_t b = std::bit_cast<uint32_t>(f);
  if (double(f) != x && std::isfinite(f) && !(b & 1)) f = std::nextafter(f, x > double(f) ? INFINITY : -INFINITY);
  return float_to_bf16(f);
}

template <class To, class From>
To convert(From x) {
  if constexpr (std::is_same_v<To, From>) {
    return x;
  } else if constexpr (std::is_same_v<From, Bf16>) {
    return convert<To>(bf16_to_float(x));
  } else if constexpr (std::is_same_v<To, Bf16>) {
    if constexpr (std::is_same_v<From, float>)
      return float_to_bf16(x);
    else
      return double_to_bf16(double(x));
  } else if constexpr (std::is_integral_v<To>) {
    using L = std::numeric_limits<To>;
    if constexpr (std::is_integral_v<From>) return To(std::clamp<int64_t>(x, L::min(), L::max()));
    if (x != x) return 0;
    if (double(x) >= double(L::max())) return L::max();
    if (double(x) <= double(L::min())) return L::min();
    return To(x);
  } else {
    return To(x);
  }
}

KB_CPU_KERNEL_ANY(Cast);
}  // namespace kb::cpu
#define KB_CAST_KERNELS kernel<kb::cpu::CastKernel>()
