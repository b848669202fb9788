// The CUDA kernels against quantile_reference.h. Counts are integers and must be equal; estimates differ by the rounding of
// the f32 in which the bias is returned: 1e-6.
#include <gtest/gtest.h>

#include "quantile_cuda_kernels.h"
#include "quantile_reference.h"
#include "tests/support/device_call.h"

namespace {
using kbtest::Array;

template <class T>
std::vector<T> values(const Array& a) {
  std::vector<T> v;
  for (int64_t i = 0; i < a.size(); ++i) v.push_back(T(a.at(i)));
  return v;
}

// A micro-batch that is routed: scores with different means an expert, ids and cutoff by sorting, some rows unused.
struct Batch {
  Array scores, cutoff, document, ids;
};
Array random_bias(int64_t experts) { return kbtest::normal(KB_F32, {experts}, 5, 0.1); }
Batch made(int64_t tokens, int64_t experts, int64_t active, uint64_t seed, const Array& bias, int unused = 0) {
  Batch b{kbtest::normal(KB_F32, {tokens, experts}, seed), kbtest::array(KB_F32, {tokens, 1}),
          kbtest::array(KB_I32, {tokens}), kbtest::array(KB_I32, {tokens, active})};
  const Array offset = kbtest::normal(KB_F32, {experts}, 77);
  for (int64_t t = 0; t < tokens; ++t) {
    b.document.set(t, unused && t % unused == unused - 1 ? -1 : double(t / 5));
    std::vector<std::pair<double, int>> order;
    for (int64_t e = 0; e < experts; ++e) {
      const int64_t i = t * experts + e;
      b.scores.set(i, 1 / (1 + std::exp(-b.scores.at(i) - offset.at(e))));
      order.push_back({-(b.scores.at(i) + bias.at(e)), int(e)});
    }
    std::sort(order.begin(), order.end());
    for (int64_t k = 0; k < active; ++k) b.ids.set(t * active + k, order[size_t(k)].second);
    b.cutoff.set(t, -order[size_t(active)].first);
  }
  return b;
}

Array count(const Array& counts, const Batch& b, const Array& bias, const kbtest::Options& o = {}) {
  std::vector<Array> out{counts};
  kbtest::run_device(kb::kernel_table<QuantileCountCuda>(), {}, {&counts, &b.scores, &b.cutoff, &b.document, &bias},
                     out, o);
  return out[0];
}
std::vector<kb_attr> estimator(int64_t active, double ema) {
  return {kb::default_attr("active", active), kb::default_attr("ema", ema)};
}
Array estimate(const Array& counts, const Array& bias, int64_t active, double ema = 0) {
  std::vector<Array> out{bias};
  kbtest::run_device(kb::kernel_table<QuantileEstimateCuda>(), estimator(active, ema), {&counts, &bias}, out);
  return out[0];
}
struct Margins {
  Array rows, filled;
};
void append(Margins& m, const Batch& b, const kbtest::Options& o = {}) {
  std::vector<Array> out{m.rows, m.filled};
  kbtest::run_device(kb::kernel_table<QuantileAppendCuda>(), {},
                     {&m.rows, &m.filled, &b.scores, &b.cutoff, &b.document}, out, o);
  m = {out[0], out[1]};
}
Margins no_margins(int64_t capacity, int64_t experts) {
  return {kbtest::array(KB_F32, {capacity, experts}), kbtest::array(KB_I32, {1})};
}
Array exact(const Margins& m, const Array& total, const Array& bias, int64_t active, double ema = 0) {
  std::vector<Array> out{bias};
  kbtest::run_device(kb::kernel_table<QuantileExactCuda>(), estimator(active, ema), {&m.rows, &m.filled, &total, &bias},
                     out);
  return out[0];
}
std::vector<std::vector<double>> counted_margins(const Batch& b) {
  std::vector<std::vector<double>> rows;
  const int64_t experts = b.scores.type.shape[1];
  for (int64_t t = 0; t < b.cutoff.size(); ++t) {
    if (b.document.at(t) < 0) continue;
    rows.emplace_back();
    for (int64_t e = 0; e < experts; ++e)
      rows.back().push_back(double(b.scores.data<float>()[t * experts + e] - b.cutoff.data<float>()[t]));
  }
  return rows;
}
double largest_difference(const Array& a, const std::vector<double>& b) {
  double most = 0;
  for (int64_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a.at(i) - b[size_t(i)]));
  return most;
}

TEST(QuantileCountCuda, EqualsTheReferenceOverOddSizes) {
  KB_NEEDS_DEVICE();
  for (int64_t tokens : {1, 4, 33, 1500})
    for (int64_t experts : {2, 15, 16, 17, 64, 99, 257})
      for (int64_t bins : {16, 1000, 20000, 40000}) {
        if (bins > 1000 && experts > 17) continue;
        const Array bias = random_bias(experts);
        const Batch b = made(tokens, experts, 1, 1, bias, 4);
        Array counts = kbtest::array(KB_I32, {experts, bins});
        for (int64_t i = 0; i < counts.size(); ++i) counts.set(i, double(i % 3));
        std::vector<int> want = values<int>(counts);
        reference::count(values<float>(b.scores), values<float>(b.cutoff), values<int>(b.document), values<float>(bias),
                         bins, want);
        EXPECT_EQ(values<int>(count(counts, b, bias)), want)
            << tokens << " tokens, " << experts << " experts, " << bins << " bins";
      }
}

TEST(QuantileCountCuda, PutsNeedsOutsideTheRangeIntoTheLastBins) {
  KB_NEEDS_DEVICE();
  const Array bias = kbtest::array(KB_F32, {2});
  Batch b{kbtest::array(KB_F32, {2, 2}, {-9, 9, 0, 0}), kbtest::array(KB_F32, {2, 1}, {0, 1}),
          kbtest::array(KB_I32, {2}), kbtest::array(KB_I32, {2, 1})};
  const Array c = count(kbtest::array(KB_I32, {2, 16}), b, bias);
  EXPECT_EQ(c.at(15), 2);  // expert 0 needs 9 and 1
  EXPECT_EQ(c.at(16), 1);  // expert 1 needs -9
  EXPECT_EQ(c.at(31), 1);  // and 1, the upper end itself
}

TEST(QuantileCountCuda, IgnoresRowsPastTheExtent) {
  KB_NEEDS_DEVICE();
  const Array bias = random_bias(8), none = kbtest::array(KB_I32, {8, 50});
  Batch b = made(20, 8, 2, 1, bias);
  b.scores.type.extent = 1;
  kbtest::Options o;
  o.extents = {0, 13};
  Batch cut = b;
  cut.scores.type.extent = 0;
  for (int64_t t = 13; t < 20; ++t) cut.document.set(t, -1);
  EXPECT_EQ(count(none, b, bias, o).bytes, count(none, cut, bias).bytes);
}

TEST(QuantileEstimateCuda, EqualsTheReferenceOverOddSizes) {
  KB_NEEDS_DEVICE();
  for (int64_t bins : {16, 200, 1000})
    for (int64_t experts : {3, 16, 33, 300})
      for (int64_t active : {1, 2})
        for (double ema : {0.0, 0.9}) {
          const Array bias = random_bias(experts);
          const Array counts =
              count(kbtest::array(KB_I32, {experts, bins}), made(131, experts, active, 3, bias, 5), bias);
          const auto want = reference::estimate(values<int>(counts), values<double>(bias), bins, active, ema);
          EXPECT_LE(largest_difference(estimate(counts, bias, active, ema), want), 1e-6) << bins << " " << experts;
        }
}

TEST(QuantileEstimateCuda, KeepsTheBiasBitForBitWhenNothingWasCounted) {
  KB_NEEDS_DEVICE();
  const Array bias = random_bias(8);  // its mean is not 0
  EXPECT_EQ(estimate(kbtest::array(KB_I32, {8, 50}), bias, 2, 0.5).bytes, bias.bytes);
}

TEST(QuantileExactCuda, EqualsTheReferenceOverMicroBatches) {
  KB_NEEDS_DEVICE();
  for (int64_t experts : {3, 8, 17, 64})
    for (double ema : {0.0, 0.9})
      for (int64_t tokens : {1, 33, 1500}) {
        const Array bias = random_bias(experts);
        Margins m = no_margins(3 * tokens + 1, experts);
        std::vector<std::vector<double>> rows;
        for (uint64_t k = 0; k < 3; ++k) {
          const Batch b = made(tokens, experts, 2, 10 + k, bias, 4);
          append(m, b);
          for (auto& r : counted_margins(b)) rows.push_back(r);
        }
        EXPECT_EQ(m.filled.at(0), double(rows.size()));
        for (size_t r = 0; r < rows.size(); ++r)
          for (int64_t e = 0; e < experts; ++e)
            ASSERT_EQ(m.rows.at(int64_t(r) * experts + e), rows[r][size_t(e)]) << "row " << r;
        EXPECT_LE(
            largest_difference(exact(m, m.filled, bias, 2, ema), reference::exact(rows, values<double>(bias), 2, ema)),
            1e-6);
      }
}

TEST(QuantileExactCuda, KeepsTheBiasBitForBitWhenNothingWasCounted) {
  KB_NEEDS_DEVICE();
  const Array bias = random_bias(8);
  const Margins m = no_margins(5, 8);
  EXPECT_EQ(exact(m, m.filled, bias, 2, 0.5).bytes, bias.bytes);
}

TEST(QuantileExactCuda, GivesNaNWhenAStepDoesNotFitOrOtherRanksHaveTokens) {
  KB_NEEDS_DEVICE();
  const Array bias = random_bias(8);
  Margins m = no_margins(20, 8);
  append(m, made(15, 8, 2, 1, bias));
  EXPECT_TRUE(std::isnan(exact(m, kbtest::array(KB_I32, {1}, {30}), bias, 2).at(3)));
  append(m, made(15, 8, 2, 2, bias));
  EXPECT_EQ(m.filled.at(0), 30);
  EXPECT_TRUE(std::isnan(exact(m, m.filled, bias, 2).at(0)));
}

TEST(ExpertLoadCuda, AddsAssignmentsOfUsedRowsOnly) {
  KB_NEEDS_DEVICE();
  const Array load = kbtest::array(KB_I32, {4}, {1, 1, 1, 1}), ids = kbtest::array(KB_I32, {3, 2}, {0, 1, 1, 3, 2, 0});
  const Array document = kbtest::array(KB_I32, {3}, {0, 0, -1});
  std::vector<Array> out{load};
  kbtest::run_device(kb::kernel_table<ExpertLoadCuda>(), {}, {&load, &ids, &document}, out);
  EXPECT_EQ(values<int>(out[0]), (std::vector<int>{2, 3, 1, 2}));
}

TEST(ExpertLoadCuda, EqualsAPlainCount) {
  KB_NEEDS_DEVICE();
  for (int64_t experts : {5, 64, 10000})
    for (int64_t tokens : {1, 700, 5000}) {
      Array load = kbtest::array(KB_I32, {experts}), ids = kbtest::array(KB_I32, {tokens, 3}),
            document = kbtest::array(KB_I32, {tokens});
      std::vector<int> want(size_t(experts), 7);
      for (int64_t e = 0; e < experts; ++e) load.set(e, 7);
      ids.type.extent = 1;
      kbtest::Options o;
      o.extents = {0, int32_t(tokens - tokens / 4)};
      std::mt19937 r(1);
      for (int64_t t = 0; t < tokens; ++t) {
        document.set(t, t % 5 == 4 ? -1 : 0);
        for (int k = 0; k < 3; ++k) {
          const int64_t e = int64_t(r() % uint32_t(experts));
          ids.set(t * 3 + k, double(e));
          want[size_t(e)] += t % 5 != 4 && t < o.extents[1];
        }
      }
      std::vector<Array> out{load};
      kbtest::run_device(kb::kernel_table<ExpertLoadCuda>(), {}, {&load, &ids, &document}, out, o);
      EXPECT_EQ(values<int>(out[0]), want);
    }
}

}  // namespace
