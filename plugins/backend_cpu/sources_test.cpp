#include "sources.h"

#include <gtest/gtest.h>

#include "philox.h"
#include "tests/support/kernel_call.h"

using namespace kb::cpu;
using kbtest::Array;
using kbtest::array;
using kbtest::run;

namespace {

// Random123, tests/kat_vectors: philox4x32 10.
TEST(Philox, GivesTheKnownAnswers) {
  using A = std::array<uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (A{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t f = 0xffffffff;
  EXPECT_EQ(philox({f, f, f, f}, {f, f}), (A{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (A{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Normal, HasTheAskedMomentsAndDependsOnSeedAndElementOnly) {
  const kb::Shape s{200001};
  const auto attrs = [&](int64_t seed) {
    return std::vector<kb_attr>{kb::Attr("shape", s), kb::Attr("std", 2.0), kb::Attr("seed", seed),
                                kb::Attr("dtype", KB_F64)};
  };
  std::vector<Array> a{array(KB_F64, s)}, b{array(KB_F64, s)}, f{array(KB_F32, s)}, other{array(KB_F64, s)};
  run(kb::kernel_table<NormalKernel>(), attrs(7), {}, a, {{}, 0, 0, 1});
  run(kb::kernel_table<NormalKernel>(), attrs(7), {}, b, {{}, 0, 0, 5});
  run(kb::kernel_table<NormalKernel>(), attrs(7), {}, f);
  run(kb::kernel_table<NormalKernel>(), attrs(8), {}, other);
  EXPECT_EQ(a[0].bytes, b[0].bytes);
  double m1 = 0, m2 = 0, m4 = 0, cross = 0, next = 0;
  const double n = double(s.at[0]);
  for (int64_t i = 0; i < s.at[0]; ++i) {
    const double x = a[0].at(i) / 2;
    ASSERT_EQ(f[0].data<float>()[i], float(a[0].at(i)));
    m1 += x / n, m2 += x * x / n, m4 += x * x * x * x / n, cross += x * other[0].at(i) / 2 / n;
    if (i) next += x * a[0].at(i - 1) / 2 / n;
  }
  const double sigma = 1 / std::sqrt(n);  // five standard deviations of each estimate
  EXPECT_NEAR(m1, 0, 5 * sigma);
  EXPECT_NEAR(m2, 1, 5 * 1.42 * sigma);
  EXPECT_NEAR(m4, 3, 5 * 9.8 * sigma);
  EXPECT_NEAR(cross, 0, 5 * sigma);
  EXPECT_NEAR(next, 0, 5 * sigma);
}

TEST(Uniform, StaysBelowItsUpperEndAndFillsTheRange) {
  const kb::Shape s{100003};
  const std::vector<kb_attr> attrs = {kb::Attr("shape", s), kb::Attr("lo", 1.0), kb::Attr("hi", 1.0 + 0x1p-20),
                                      kb::Attr("seed", 3), kb::Attr("dtype", KB_F64)};
  std::vector<Array> f{array(KB_F32, s)}, d{array(KB_F64, s)};
  run(kb::kernel_table<UniformKernel>(), attrs, {}, f);
  run(kb::kernel_table<UniformKernel>(), attrs, {}, d);
  double mean = 0;
  for (int64_t i = 0; i < s.at[0]; ++i) {
    ASSERT_GE(f[0].at(i), 1.0);
    ASSERT_LT(f[0].at(i), 1.0 + 0x1p-20);  // many draws would round to the end in float
    mean += (d[0].at(i) - 1) * 0x1p20 / double(s.at[0]);
  }
  EXPECT_NEAR(mean, 0.5, 5 * 0.29 / std::sqrt(double(s.at[0])));
}

TEST(Fill, VectorAndIotaWriteTheirNumbers) {
  std::vector<Array> y{array(KB_I32, {5})}, f{array(KB_F32, {3})};
  run(kb::kernel_table<FillKernel>(),
      {kb::Attr("shape", kb::Shape{5}), kb::Attr("value", -1.0), kb::Attr("dtype", KB_I32)}, {}, y);
  EXPECT_EQ(y[0].at(4), -1);
  run(kb::kernel_table<IotaKernel>(), {kb::Attr("n", 5)}, {}, y);
  EXPECT_EQ(y[0].at(4), 4);
  const std::vector<double> v = {0.5, -2, 3};
  run(kb::kernel_table<VectorKernel>(), {kb::Attr("values", v), kb::Attr("dtype", KB_F32)}, {}, f);
  EXPECT_EQ(f[0].at(1), -2);
  run(kb::kernel_table<FillKernel>(),
      {kb::Attr("shape", kb::Shape{3}), kb::Attr("value", double(-INFINITY)), kb::Attr("dtype", KB_F32)}, {}, f);
  EXPECT_EQ(f[0].at(2), -INFINITY);
}

}  // namespace
