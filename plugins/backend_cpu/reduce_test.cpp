#include "reduce.h"

#include <gtest/gtest.h>

#include "elements_reference.h"

using namespace kb::cpu;
using kbtest::Array;
using kbtest::array;
using kbtest::normal;
using kbtest::run;

namespace {

// Sums lose at most 64 roundings in the type, then a rounding of the result.
double tolerance(uint32_t dtype) { return dtype == KB_F32 ? 2e-6 : 1e-14; }

double total(const std::vector<double>& v) {
  long double s = 0;
  for (double x : v) s += x;
  return double(s);
}

kb::Shape without(const kb::Shape& s, int axis) {
  kb::Shape r;
  for (int i = 0; i < s.n; ++i)
    if (i != axis) r.at[r.n++] = s.at[i];
  return r;
}

const std::vector<kb::Shape>& shapes() {
  static const std::vector<kb::Shape> s = {{1},       {2},         {3},         {5},         {17},       {63},
                                           {64},      {65},        {1000},      {300000},    {2000, 65}, {3, 1000},
                                           {1000, 3}, {40, 17, 9}, {5, 3, 700}, {700, 3, 5}, {17, 2000}, {1, 5, 1}};
  return s;
}

TEST(Sum, AgreesWithTheReferenceOnEveryAxis) {
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (const kb::Shape& s : shapes())
      for (int axis = 0; axis < s.n; ++axis) {
        const Array x = normal(dtype, s, 3);
        std::vector<Array> y{array(dtype, without(s, axis))};
        Array want = y[0];
        reference::reduce(x, axis, want, total);
        const std::vector<kb_attr> attrs = {kb::Attr("axis", axis - s.n), kb::Attr("keep", false)};
        run(kb::kernel_table<SumKernel>(), attrs, {&x}, y);
        ASSERT_LE(kbtest::relative_error(y[0], want), tolerance(dtype)) << s.size() << " axis " << axis;
        std::vector<Array> twice = y;
        run(kb::kernel_table<SumKernel>(), attrs, {&x}, twice, {{}, 1});
        for (int64_t i = 0; i < want.size(); ++i)
          ASSERT_NEAR(twice[0].at(i), 2 * y[0].at(i), 1e-5 * std::fabs(y[0].at(i)) + 1e-12);
      }
}

TEST(Sum, KeepsTheErrorOfPairwiseSummation) {
  const int64_t n = 1 << 22;
  Array x = array(KB_F32, {n});
  for (int64_t i = 0; i < n; ++i) x.data<float>()[i] = 0.1f;
  std::vector<Array> y{array(KB_F32, {})};
  run(kb::kernel_table<SumKernel>(), {kb::Attr("axis", 0), kb::Attr("keep", false)}, {&x}, y);
  EXPECT_NEAR(y[0].at(0), double(0.1f) * double(n),
              double(0.1f) * double(n) * 1e-6);  // one after the other: off by 2 %
}

TEST(Sum, GivesTheSameBitsForAnyNumberOfThreads) {
  for (const kb::Shape& s : {kb::Shape{300000}, kb::Shape{2000, 65}, kb::Shape{4096, 7, 3}}) {
    const Array x = normal(KB_F32, s, 5);
    std::vector<char> first;
    for (int32_t threads : {1, 2, 7}) {
      std::vector<Array> y{array(KB_F32, without(s, 0))};
      run(kb::kernel_table<SumKernel>(), {kb::Attr("axis", 0), kb::Attr("keep", false)}, {&x}, y, {{}, 0, 0, threads});
      if (first.empty()) first = y[0].bytes;
      EXPECT_EQ(y[0].bytes, first);
    }
  }
}

TEST(Sum, CountsOnlyTheRowsInUse) {
  Array x = normal(KB_F64, {100, 3}, 5);
  x.type.extent = 1;
  std::vector<Array> y{array(KB_F64, {3})};
  for (int64_t i = 60; i < 300; ++i) x.set(i, NAN);
  run(kb::kernel_table<SumKernel>(), {kb::Attr("axis", 0), kb::Attr("keep", false)}, {&x}, y, {{0, 20}});
  EXPECT_TRUE(std::isfinite(y[0].at(2)));
  // Fewer rows in use may cut a sum in more pieces than its bound: the workspace must still do (checked by a
  // sanitizer).
  Array wide = normal(KB_F64, {20, 300000}, 5);
  wide.type.extent = 1;
  std::vector<Array> z{array(KB_F64, {20})};
  run(kb::kernel_table<SumKernel>(), {kb::Attr("axis", 1), kb::Attr("keep", false)}, {&wide}, z, {{0, 3}});
  EXPECT_TRUE(std::isfinite(z[0].at(2)));
}

TEST(SumTo, AgreesWithTheReferenceForEveryPattern) {
  struct Case {
    kb::Shape x, y;
  };
  const Case cases[] = {{{300, 70}, {70}},
                        {{5, 7, 9}, {7, 1}},
                        {{5, 7, 9}, {7, 9}},
                        {{5, 7, 9}, {9}},
                        {{5, 7, 9}, {}},
                        {{5, 7, 9}, {1}},
                        {{5, 7, 9}, {5, 7, 1}},
                        {{5, 7, 9}, {5, 1, 9}},
                        {{5, 7, 9}, {5, 7, 9}},
                        {{2048, 4, 64}, {4, 1}},
                        {{2048, 4, 64}, {64}},
                        {{2, 3, 4, 5, 6}, {3, 1, 5, 1}},
                        {{2, 3, 4, 5, 6}, {2, 1, 4, 1, 6}},
                        {{1}, {1}},
                        {{}, {}},
                        {{70000}, {1}},
                        {{1, 65}, {65}},
                        {{65, 1}, {1}},
                        {{20, 3000, 40}, {20, 1, 1}}};
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (const Case& k : cases) {
      const Array x = normal(dtype, k.x, 8);
      std::vector<Array> y{array(dtype, k.y)};
      Array want = y[0];
      reference::sum_to(x, want);
      run(kb::kernel_table<SumToKernel>(), {kb::Attr("shape", k.y)}, {&x}, y);
      ASSERT_LE(kbtest::relative_error(y[0], want), tolerance(dtype)) << kb::text(k.x.size(), " to ", k.y.size());
      std::vector<Array> twice = y;
      run(kb::kernel_table<SumToKernel>(), {kb::Attr("shape", k.y)}, {&x}, twice, {{}, 1});
      for (int64_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(twice[0].at(i), 2 * y[0].at(i), 1e-5 * std::fabs(y[0].at(i)) + 1e-12);
    }
}

TEST(SumTo, UsesOnlyTheRowsInUseAndAPlannedWorkspace) {
  for (int32_t rows : {0, 1, 2, 9, 17, 20}) {
    Array x = normal(KB_F64, {20, 900, 40}, 5);
    x.type.extent = 1;
    Array cut = x;
    for (int64_t i = rows * 900 * 40; i < x.size(); ++i) x.set(i, NAN), cut.set(i, 0);
    for (const kb::Shape& s : {kb::Shape{40}, kb::Shape{900, 1}, kb::Shape{1}, kb::Shape{900, 40}}) {
      std::vector<Array> y{array(KB_F64, s)};
      Array want = y[0];
      reference::sum_to(cut, want);
      run(kb::kernel_table<SumToKernel>(), {kb::Attr("shape", s)}, {&x}, y, {{0, rows}});
      EXPECT_LE(kbtest::relative_error(y[0], want, 1e-6), 1e-12) << rows;
    }
  }
}

TEST(SquareSum, AgreesWithTheReference) {
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (int64_t n : {1, 2, 3, 5, 17, 63, 64, 65, 1000, 70000, 300001}) {
      const Array x = normal(dtype, {n}, uint64_t(n));
      double want = 0;
      for (int64_t i = 0; i < n; ++i) want += x.at(i) * x.at(i);
      std::vector<Array> y{array(dtype, {})};
      run(kb::kernel_table<SquareSumKernel>(), {}, {&x}, y);
      EXPECT_NEAR(y[0].at(0), want, want * tolerance(dtype));
    }
  // Many at once, as the gradients of a model.
  for (uint32_t dtype : {KB_F32, KB_F64}) {
    std::vector<Array> x;
    double want = 0;
    for (int64_t n : {5, 70000, 1, 131073, 0, 64, 300}) {
      x.push_back(normal(dtype, {n}, uint64_t(n)));
      for (int64_t i = 0; i < n; ++i) want += x.back().at(i) * x.back().at(i);
    }
    while (x.size() < 256) x.push_back(array(dtype, {3}, {1, 2, 2})), want += 9;
    std::vector<const Array*> in;
    for (const Array& a : x) in.push_back(&a);
    std::vector<Array> y{array(dtype, {})}, again = y;
    run(kb::kernel_table<SquareSumKernel>(), {}, in, y);
    run(kb::kernel_table<SquareSumKernel>(), {}, in, again);
    EXPECT_NEAR(y[0].at(0), want, want * tolerance(dtype));
    EXPECT_EQ(y[0].bytes, again[0].bytes);
  }
}

TEST(Amax, IgnoresNaNAndReachesEveryTail) {
  for (const kb::Shape& s : shapes())
    for (int axis = 0; axis < s.n; ++axis) {
      Array x = normal(KB_F32, s, 3);
      if (x.size() > 4) x.set(x.size() / 2, NAN), x.set(1, -INFINITY);
      std::vector<Array> y{array(KB_F32, without(s, axis))};
      Array want = y[0];
      reference::reduce(x, axis, want, [](const std::vector<double>& v) {
        double m = -INFINITY;
        for (double a : v) m = a > m ? a : m;
        return m;
      });
      run(kb::kernel_table<AmaxKernel>(), {kb::Attr("axis", axis), kb::Attr("keep", false)}, {&x}, y);
      for (int64_t i = 0; i < want.size(); ++i) ASSERT_EQ(y[0].at(i), want.at(i));
    }
}

TEST(Softmax, AgreesWithTheReferenceAndSurvivesExtremes) {
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (int64_t n : {1, 2, 3, 5, 17, 63, 64, 65, 1000}) {
      Array x = normal(dtype, {7, n}, uint64_t(n), 30);
      if (n > 2) x.set(0, 1e4), x.set(n, -1e4), x.set(2 * n + 1, -INFINITY);
      std::vector<Array> y{x};
      Array want = x;
      reference::softmax(x, want);
      run(kb::kernel_table<SoftmaxKernel>(), {}, {&x}, y);
      EXPECT_LE(kbtest::relative_error(y[0], want), dtype == KB_F32 ? 1e-6 : 1e-14);
    }
  const Array bad = array(KB_F32, {2, 2}, {1, double(NAN), 1, 1});
  std::vector<Array> y{bad};
  run(kb::kernel_table<SoftmaxKernel>(), {}, {&bad}, y);
  EXPECT_TRUE(std::isnan(y[0].at(0)));
  EXPECT_EQ(y[0].at(2), 0.5);
}

}  // namespace
