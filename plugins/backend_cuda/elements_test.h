// elements_test.h: what the tests of the element kernels share: both float types, and the largest errors seen, by name.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "plugins/backend_cpu/elements_reference.h"
#include "tests/support/device_call.h"

namespace elements_test {
using kbtest::Array;
using kbtest::array;
using kbtest::normal;
using kbtest::run_device;
namespace reference = kb::cpu::reference;

inline constexpr uint32_t kTypes[] = {KB_F32, KB_BF16};
// f32: a few roundings of 6e-8; bf16: one rounding of 2e-3 at most, 1.1e-3 root mean square.
inline double tolerance(uint32_t dtype) { return dtype == KB_F32 ? 2e-6 : 2.5e-3; }

inline std::map<std::string, double>& worst() {
  static std::map<std::string, double> w;
  return w;
}
// The relative error of a whole array, kept for the summary.
inline double error(const char* what, const Array& got, const Array& want, double floor = 1e-30) {
  const double e = kbtest::relative_error(got, want, floor);
  double& w = worst()[std::string(what) + " " + kb::dtype_name(got.type.dtype)];
  if (!(e <= w)) w = e;
  return e;
}
// |got - want| <= tolerance * |want| + absolute, element by element.
inline void expect_close(const char* what, const Array& got, const Array& want, double relative, double absolute) {
  ASSERT_EQ(got.size(), want.size());
  for (int64_t i = 0; i < want.size(); ++i) {
    const double g = got.at(i), w = want.at(i);
    if (std::isnan(w)) {
      ASSERT_TRUE(std::isnan(g)) << what << " element " << i << ": " << g << ", want NaN";
    } else if (g != w) {  // infinities are equal
      ASSERT_LE(std::fabs(g - w), relative * std::fabs(w) + absolute)
          << what << " element " << i << ": " << g << " want " << w;
    }
  }
}
inline void expect_bytes(const Array& got, const Array& want) { ASSERT_EQ(got.bytes, want.bytes); }
inline Array wide(const Array& a) {  // the same numbers as f64
  Array w = array(KB_F64, kb::shape_of(a.type));
  for (int64_t i = 0; i < a.size(); ++i) w.set(i, a.at(i));
  return w;
}
inline Array counted(uint32_t dtype, const kb::Shape& s) {  // bytes that differ from element to element
  Array x = array(dtype, s);
  const size_t w = Array::width(dtype);
  for (size_t i = 0; i < x.bytes.size(); ++i) x.bytes[i] = char((i / w + 1) >> (8 * (i % w)));
  return x;
}
inline Array numbers_below(const kb::Shape& s, int least, int limit, uint64_t seed) {
  std::mt19937_64 r(seed);
  Array a = array(KB_I32, s);
  for (int64_t i = 0; i < a.size(); ++i) a.set(i, double(least + int(r() % uint64_t(limit - least))));
  return a;
}

}  // namespace elements_test
