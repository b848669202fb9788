#include "norm.h"

#include <gtest/gtest.h>

#include "elements_reference.h"

using namespace kb::cpu;
using kbtest::Array;
using kbtest::array;
using kbtest::normal;
using kbtest::run;

namespace {

const std::vector<kb_attr> kEps = {kb::Attr("eps", 1e-5)};
double tolerance(uint32_t dtype) {
  return dtype == KB_F32 ? 1e-6 : 1e-14;
}  // a few roundings, and a dot product of a row

TEST(RmsNorm, AgreesWithTheReferenceForwardAndBackward) {
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (int64_t n : {1, 2, 3, 5, 17, 63, 64, 65, 1000})
      for (const kb::Shape& lead : {kb::Shape{1}, kb::Shape{3, 2}, kb::Shape{700}}) {
        kb::Shape s = lead;
        s.at[s.n++] = n;
        const Array x = normal(dtype, s, 1), w = normal(dtype, {n}, 2), dy = normal(dtype, s, 3);
        std::vector<Array> y{array(dtype, s)}, d{array(dtype, s), array(dtype, {n})};
        Array want = y[0], want_dx = y[0], want_dw = d[1];
        reference::rms_norm(x, w, 1e-5, want);
        reference::rms_norm_backward(x, w, dy, 1e-5, want_dx, want_dw);
        run(kb::kernel_table<RmsNormKernel>(), kEps, {&x, &w}, y);
        run(kb::kernel_table<RmsNormBackwardKernel>(), kEps, {&x, &w, &dy}, d);
        EXPECT_LE(kbtest::relative_error(y[0], want), tolerance(dtype)) << n;
        EXPECT_LE(kbtest::relative_error(d[1], want_dw), tolerance(dtype)) << n;
        if (n > 1) {  // of one channel almost nothing is left after cancellation
          EXPECT_LE(kbtest::relative_error(d[0], want_dx), 3 * tolerance(dtype)) << n;
        }
      }
}

TEST(RmsNorm, IsFiniteForZerosAndLargeRows) {
  for (double v : {0.0, 1e4, -1e4}) {
    Array x = array(KB_F32, {1, 65});
    for (int64_t i = 0; i < 65; ++i) x.set(i, v);
    const Array w = normal(KB_F32, {65}, 2), dy = normal(KB_F32, {1, 65}, 3);
    std::vector<Array> y{x}, d{x, w};
    run(kb::kernel_table<RmsNormKernel>(), kEps, {&x, &w}, y);
    run(kb::kernel_table<RmsNormBackwardKernel>(), kEps, {&x, &w, &dy}, d);
    for (int64_t i = 0; i < 65; ++i)
      EXPECT_TRUE(std::isfinite(y[0].at(i)) && std::isfinite(d[0].at(i)) && std::isfinite(d[1].at(i)));
  }
}

TEST(RmsNormBackward, ComputesOnlyWhatIsWantedAndAccumulates) {
  const Array x = normal(KB_F32, {500, 65}, 1), w = normal(KB_F32, {65}, 2), dy = normal(KB_F32, {500, 65}, 3);
  std::vector<Array> both{x, w}, one{x, w};
  run(kb::kernel_table<RmsNormBackwardKernel>(), kEps, {&x, &w, &dy}, both);
  run(kb::kernel_table<RmsNormBackwardKernel>(), kEps, {&x, &w, &dy}, one, {{}, 0, 1});
  EXPECT_EQ(one[1].bytes, both[1].bytes);
  run(kb::kernel_table<RmsNormBackwardKernel>(), kEps, {&x, &w, &dy}, one, {{}, 0, 2});
  EXPECT_EQ(one[0].bytes, both[0].bytes);
  std::vector<Array> twice{x, both[1]};
  run(kb::kernel_table<RmsNormBackwardKernel>(), kEps, {&x, &w, &dy}, twice, {{}, 2});
  for (int64_t i = 0; i < 65; ++i) EXPECT_NEAR(twice[1].at(i), 2 * both[1].at(i), 1e-6 * std::fabs(both[1].at(i)));
}

TEST(RmsNormBackward, GivesTheSameBitsForAnyThreadsAndSkipsUnusedRows) {
  Array x = normal(KB_F32, {2000, 33}, 1), dy = normal(KB_F32, {2000, 33}, 3);
  const Array w = normal(KB_F32, {33}, 2);
  x.type.extent = dy.type.extent = 1;
  for (int64_t i = 900 * 33; i < x.size(); ++i) x.set(i, NAN);
  std::vector<char> first;
  for (int32_t threads : {1, 2, 7}) {
    std::vector<Array> d{x, w};
    d[0].type.extent = 1;
    run(kb::kernel_table<RmsNormBackwardKernel>(), kEps, {&x, &w, &dy}, d, {{0, 900}, 0, 0, threads});
    if (first.empty()) first = d[1].bytes;
    EXPECT_EQ(d[1].bytes, first);
    EXPECT_TRUE(std::isfinite(d[1].at(0)));
  }
}

}  // namespace
