// Sums, maxima, softmax, norms and the loss against the plain loops in double.
#include "elements_test.h"
#include "loss_kernels.h"
#include "norm_kernels.h"
#include "plugins/backend_cpu/reference.h"
#include "reduce_kernels.h"

using namespace elements_test;
using namespace kb::cuda::element;

namespace {

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
  static const std::vector<kb::Shape> s = {{1},        {2},         {3},           {5},          {17},       {63},
                                           {64},       {65},        {1000},        {300000},     {2000, 65}, {3, 1000},
                                           {1000, 3},  {40, 17, 9}, {5, 3, 700},   {700, 3, 5},  {17, 2000}, {1, 5, 1},
                                           {2000, 64}, {7, 5000},   {3000, 8, 16}, {2, 9000, 8}, {0, 3},     {3, 0}};
  return s;
}

TEST(CudaSum, AgreesWithTheReferenceOnEveryAxis) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : kTypes)
    for (const kb::Shape& s : shapes())
      for (int axis = 0; axis < s.n; ++axis) {
        const Array x = normal(dtype, s, 3);
        std::vector<Array> y{array(dtype, without(s, axis))};
        Array want = y[0];
        reference::reduce(x, axis, want, total);
        const std::vector<kb_attr> attrs = {kb::Attr("axis", axis - s.n), kb::Attr("keep", false)};
        run_device(kb::kernel_table<SumKernel>(), attrs, {&x}, y);
        ASSERT_LE(error("sum", y[0], want), tolerance(dtype)) << s.size() << " axis " << axis;
        std::vector<Array> twice = y;
        run_device(kb::kernel_table<SumKernel>(), attrs, {&x}, twice, {{}, 1});
        for (int64_t i = 0; i < want.size(); ++i)
          ASSERT_NEAR(twice[0].at(i), 2 * y[0].at(i), (dtype == KB_F32 ? 1e-5 : 2e-2) * std::fabs(y[0].at(i)) + 1e-12);
      }
  const Array x = numbers_below({300, 7}, -1000, 1000, 1);
  std::vector<Array> y{array(KB_I32, {7})};
  Array want = y[0];
  reference::reduce(x, 0, want, total);
  run_device(kb::kernel_table<SumKernel>(), {kb::Attr("axis", 0), kb::Attr("keep", false)}, {&x}, y);
  expect_bytes(y[0], want);
}

TEST(CudaSum, KeepsItsErrorSmallAndItsBits) {
  KB_NEEDS_DEVICE();
  const int64_t n = 1 << 22;
  Array x = array(KB_F32, {n});
  for (int64_t i = 0; i < n; ++i) x.data<float>()[i] = 0.1f;
  std::vector<Array> y{array(KB_F32, {})}, again = y;
  run_device(kb::kernel_table<SumKernel>(), {kb::Attr("axis", 0), kb::Attr("keep", false)}, {&x}, y);
  run_device(kb::kernel_table<SumKernel>(), {kb::Attr("axis", 0), kb::Attr("keep", false)}, {&x}, again);
  expect_bytes(y[0], again[0]);
  EXPECT_NEAR(y[0].at(0), double(0.1f) * double(n), double(0.1f) * double(n) * 1e-6);
}

TEST(CudaSum, AndAmaxCountOnlyTheRowsInUse) {
  KB_NEEDS_DEVICE();
  for (int32_t rows : {0, 1, 20, 99, 100}) {
    Array x = normal(KB_F32, {100, 24}, 5);
    x.type.extent = 1;
    for (int64_t i = 0; i < x.size(); ++i) x.set(i, i < rows * 24 ? -1 - std::fabs(x.at(i)) : 0);
    std::vector<Array> s{array(KB_F32, {24})}, m{array(KB_F32, {24})}, q{array(KB_F32, {})};
    Array sum = s[0], most = m[0];
    double square = 0;
    for (int64_t i = 0; i < 24; ++i) most.set(i, -INFINITY);
    for (int64_t i = 0; i < rows * 24; ++i) {
      sum.set(i % 24, sum.at(i % 24) + x.at(i)), most.set(i % 24, std::max(most.at(i % 24), x.at(i)));
      square += x.at(i) * x.at(i);
    }
    const std::vector<kb_attr> attrs = {kb::Attr("axis", 0), kb::Attr("keep", false)};
    run_device(kb::kernel_table<SumKernel>(), attrs, {&x}, s, {{0, rows}});
    run_device(kb::kernel_table<AmaxKernel>(), attrs, {&x}, m, {{0, rows}});
    run_device(kb::kernel_table<SquareSumKernel>(), {}, {&x}, q, {{0, rows}});
    expect_close("sum", s[0], sum, 1e-5, 0);
    expect_close("amax", m[0], most, 0, 0);
    EXPECT_NEAR(q[0].at(0), square, 1e-5 * square);
    for (const kb::Shape& shape : {kb::Shape{24}, kb::Shape{1}, kb::Shape{}}) {
      std::vector<Array> y{array(KB_F32, shape)};
      Array want = y[0];
      reference::sum_to(x, want);
      run_device(kb::kernel_table<SumToKernel>(), {kb::Attr("shape", shape)}, {&x}, y, {{0, rows}});
      expect_close("sum_to", y[0], want, 1e-5, 0);
    }
  }
}

TEST(CudaSumTo, AgreesWithTheReferenceForEveryPattern) {
  KB_NEEDS_DEVICE();
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
                        {{0, 8}, {8}},
                        {{5000, 256}, {256}},
                        {{20, 3000, 40}, {20, 1, 1}}};
  for (uint32_t dtype : kTypes)
    for (const Case& k : cases) {
      const Array x = normal(dtype, k.x, 8);
      std::vector<Array> y{array(dtype, k.y)};
      Array want = y[0];
      reference::sum_to(x, want);
      run_device(kb::kernel_table<SumToKernel>(), {kb::Attr("shape", k.y)}, {&x}, y);
      ASSERT_LE(error("sum_to", y[0], want), dtype == KB_F32 ? 5e-6 : tolerance(dtype))
          << kb::text(k.x.size(), " to ", k.y.size());
      std::vector<Array> twice = y;
      run_device(kb::kernel_table<SumToKernel>(), {kb::Attr("shape", k.y)}, {&x}, twice, {{}, 1});
      for (int64_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(twice[0].at(i), 2 * y[0].at(i), (dtype == KB_F32 ? 1e-5 : 2e-2) * std::fabs(y[0].at(i)) + 1e-12);
    }
}

TEST(CudaSquareSum, AgreesWithTheReference) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : kTypes)
    for (int64_t n : {1, 2, 3, 5, 17, 63, 64, 65, 1000, 70000, 300001, 3000000}) {
      const Array x = normal(dtype, {n}, uint64_t(n));
      double want = 0;
      for (int64_t i = 0; i < n; ++i) want += x.at(i) * x.at(i);
      std::vector<Array> y{array(KB_F32, {})};
      run_device(kb::kernel_table<SquareSumKernel>(), {}, {&x}, y);
      EXPECT_NEAR(y[0].at(0), want, want * 2e-6);
    }
  // Many at once, as the gradients of a model.
  for (uint32_t dtype : kTypes) {
    std::vector<Array> x;
    double want = 0;
    for (int64_t n : {5, 70000, 1, 131073, 0, 64, 300}) {
      x.push_back(normal(dtype, {n}, uint64_t(n)));
      for (int64_t i = 0; i < n; ++i) want += x.back().at(i) * x.back().at(i);
    }
    while (x.size() < 256) x.push_back(array(dtype, {3}, {1, 2, 2})), want += 9;
    std::vector<const Array*> in;
    for (const Array& a : x) in.push_back(&a);
    std::vector<Array> y{array(KB_F32, {})}, again = y;
    run_device(kb::kernel_table<SquareSumKernel>(), {}, in, y);
    run_device(kb::kernel_table<SquareSumKernel>(), {}, in, again);
    EXPECT_NEAR(y[0].at(0), want, want * 2e-6);
    EXPECT_EQ(y[0].bytes, again[0].bytes);
  }
}

TEST(CudaAmax, IgnoresNaNAndReachesEveryTail) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : kTypes)
    for (const kb::Shape& s : shapes())
      for (int axis = 0; axis < s.n; ++axis) {
        Array x = normal(dtype, s, 3);
        if (x.size() > 4) x.set(x.size() / 2, NAN), x.set(1, -INFINITY);
        std::vector<Array> y{array(dtype, without(s, axis))};
        Array want = y[0];
        reference::reduce(x, axis, want, [](const std::vector<double>& v) {
          double m = -INFINITY;
          for (double a : v) m = a > m ? a : m;
          return m;
        });
        run_device(kb::kernel_table<AmaxKernel>(), {kb::Attr("axis", axis), kb::Attr("keep", false)}, {&x}, y);
        for (int64_t i = 0; i < want.size(); ++i) ASSERT_EQ(y[0].at(i), want.at(i));
      }
}

TEST(CudaSoftmax, AgreesWithTheReferenceAndSurvivesExtremes) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : kTypes)
    for (int64_t n : {1, 2, 3, 5, 8, 17, 63, 64, 65, 896, 1000, 1024, 1025, 3000, 8192, 8200, 33001, 40000}) {
      Array x = normal(dtype, {7, n}, uint64_t(n), 30);
      if (n > 2) x.set(0, 1e4), x.set(n, -1e4), x.set(2 * n + 1, -INFINITY);
      std::vector<Array> y{x};
      Array want = x;
      reference::softmax(x, want);
      run_device(kb::kernel_table<SoftmaxKernel>(), {}, {&x}, y);
      EXPECT_LE(error("softmax", y[0], want), tolerance(dtype)) << n;
    }
  const Array bad = array(KB_F32, {2, 2}, {1, double(NAN), 1, 1});
  std::vector<Array> y{bad};
  run_device(kb::kernel_table<SoftmaxKernel>(), {}, {&bad}, y);
  EXPECT_TRUE(std::isnan(y[0].at(0)));
  EXPECT_EQ(y[0].at(2), 0.5);
}

const std::vector<kb_attr> kEps = {kb::Attr("eps", 1e-5)};

TEST(CudaRmsNorm, AgreesWithTheReferenceForwardAndBackward) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : kTypes)
    for (uint32_t w_type : kTypes)
      for (int64_t n : {1, 2, 3, 8, 17, 64, 65, 128, 512, 1000, 1024, 2304, 4096, 7168})
        for (const kb::Shape& lead : {kb::Shape{1}, kb::Shape{3, 2}, kb::Shape{700}}) {
          if (n > 2000 && lead.n == 1 && lead.at[0] > 1 && w_type == KB_BF16) continue;
          kb::Shape s = lead;
          s.at[s.n++] = n;
          const Array x = normal(dtype, s, 1), w = normal(w_type, {n}, 2), dy = normal(dtype, s, 3);
          std::vector<Array> y{array(dtype, s)}, d{array(dtype, s), array(w_type, {n})};
          Array want = y[0], want_dx = y[0], want_dw = d[1];
          reference::rms_norm(x, w, 1e-5, want);
          reference::rms_norm_backward(x, w, dy, 1e-5, want_dx, want_dw);
          run_device(kb::kernel_table<RmsNormKernel>(), kEps, {&x, &w}, y);
          run_device(kb::kernel_table<RmsNormBackwardKernel>(), kEps, {&x, &w, &dy}, d);
          EXPECT_LE(error("rms_norm", y[0], want), tolerance(dtype)) << n;
          EXPECT_LE(error("rms_norm dw", d[1], want_dw), tolerance(w_type)) << n;
          if (n > 1) {  // of one channel almost nothing is left after cancellation
            EXPECT_LE(error("rms_norm dx", d[0], want_dx), 3 * tolerance(dtype)) << n;
          }
        }
}

TEST(CudaRmsNormBackward, ComputesOnlyWhatIsWantedAndAccumulates) {
  KB_NEEDS_DEVICE();
  for (int64_t n : {65, 128, 4096}) {
    const Array x = normal(KB_BF16, {500, n}, 1), w = normal(KB_F32, {n}, 2), dy = normal(KB_BF16, {500, n}, 3);
    std::vector<Array> both{x, w}, one{x, w};
    run_device(kb::kernel_table<RmsNormBackwardKernel>(), kEps, {&x, &w, &dy}, both);
    run_device(kb::kernel_table<RmsNormBackwardKernel>(), kEps, {&x, &w, &dy}, one, {{}, 0, 1});
    expect_bytes(one[1], both[1]);
    run_device(kb::kernel_table<RmsNormBackwardKernel>(), kEps, {&x, &w, &dy}, one, {{}, 0, 2});
    expect_bytes(one[0], both[0]);
    std::vector<Array> twice{x, both[1]};
    run_device(kb::kernel_table<RmsNormBackwardKernel>(), kEps, {&x, &w, &dy}, twice, {{}, 2});
    for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(twice[1].at(i), 2 * both[1].at(i), 1e-6 * std::fabs(both[1].at(i)));
  }
}

struct Loss {
  Array x, target, weight;
  std::vector<Array> out, gradient;
  double want = 0;
  Array want_lse, want_dx;
};
Loss make_loss(uint32_t dtype, int64_t rows, int64_t n, double size) {
  Loss l{normal(dtype, {rows, n}, 1, size), array(KB_I32, {rows}), array(KB_F32, {rows}), {}, {}, 0, {}, {}};
  for (int64_t r = 0; r < rows; ++r) {
    l.target.set(r, r % 5 == 3 ? -1 : double((r * 7 + 1) % n));
    l.weight.set(r, r % 4 == 2 ? 0 : 0.5 + 0.25 * double(r % 3));
  }
  l.want_lse = array(KB_F64, {rows}), l.want_dx = array(KB_F64, {rows, n});
  l.out = {array(KB_F32, {}), array(KB_F32, {rows})};
  l.gradient = {array(dtype, {rows, n})};
  const Array x = wide(l.x), w = wide(l.weight);
  l.want = reference::cross_entropy<double>(rows, n, x.data<double>(), l.target.data<int32_t>(), w.data<double>(),
                                            l.want_lse.data<double>(), l.want_dx.data<double>());
  return l;
}
void run(Loss& l, const kbtest::Options& o = {}) {
  run_device(kb::kernel_table<CrossEntropyKernel>(), {}, {&l.x, &l.target, &l.weight}, l.out, o);
  const Array up = array(KB_F32, {}, {1});
  run_device(kb::kernel_table<CrossEntropyBackwardKernel>(), {}, {&l.x, &l.target, &l.weight, &l.out[1], &up},
             l.gradient, o);
}

TEST(CudaCrossEntropy, EqualsThePlainLoops) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : kTypes)
    for (int64_t rows : {1, 2, 17, 65})
      for (int64_t n : {1, 2, 3, 17, 64, 127, 1000, 5000, 16384, 163840}) {
        if (n > 5000 && rows > 2) continue;
        for (double size : {1.0, 1e3}) {
          Loss l = make_loss(dtype, rows, n, size);
          run(l);
          EXPECT_LE(std::abs(l.out[0].at(0) - l.want), 2e-6 * std::max(size * 8, std::abs(l.want))) << rows << "x" << n;
          EXPECT_LE(error("cross_entropy lse", l.out[1], l.want_lse), 2e-6) << rows << "x" << n << " size " << size;
          // lse is a float: off by 6e-8 of its size, and every probability with it
          EXPECT_LE(kbtest::relative_error(l.gradient[0], l.want_dx, 1), tolerance(dtype) + 1e-6 * size)
              << rows << "x" << n;
          if (size == 1) error("cross_entropy dlogits", l.gradient[0], l.want_dx, 1);
        }
      }
}

TEST(CudaCrossEntropy, RowsPastTheExtentCountNothing) {
  KB_NEEDS_DEVICE();
  Loss l = make_loss(KB_BF16, 40, 33, 1), small = make_loss(KB_BF16, 25, 33, 1);
  l.x.type.extent = 1;
  for (int64_t r = 25; r < 40; ++r) l.target.set(r, 99);  // not even looked at
  run(l, {{0, 25}});
  EXPECT_NEAR(l.out[0].at(0), small.want, 1e-4);
}

TEST(CudaCrossEntropy, ComputesWhatIsWantedAloneAndShowsWhatIsWrong) {
  KB_NEEDS_DEVICE();
  Loss all = make_loss(KB_F32, 17, 33, 1), part = make_loss(KB_F32, 17, 33, 1);
  run(all);
  for (uint64_t unwanted : {1, 2}) {
    run_device(kb::kernel_table<CrossEntropyKernel>(), {}, {&part.x, &part.target, &part.weight}, part.out,
               {{}, 0, unwanted});
    expect_bytes(part.out[2 - unwanted], all.out[2 - unwanted]);
  }
  all.target.set(4, 33);
  run(all);
  EXPECT_TRUE(std::isnan(all.out[0].at(0)));
  part.x.set(5, NAN);
  run(part);
  EXPECT_TRUE(std::isnan(part.out[0].at(0)));
}

}  // namespace
