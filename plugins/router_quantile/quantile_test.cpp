// The kernels against quantile_reference.h. Counts are integers and must be equal; estimates differ by the rounding of
// the type in which the bias is returned: 1e-14 in double, 1e-6 in float.
#include <gtest/gtest.h>

#include "quantile_cpu.h"
#include "quantile_reference.h"
#include "tests/support/kernel_call.h"

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
Array random_bias(uint32_t dtype, int64_t experts) { return kbtest::normal(dtype, {experts}, 5, 0.1); }
Batch made(uint32_t dtype, int64_t tokens, int64_t experts, int64_t active, uint64_t seed, const Array& bias,
           int unused = 0) {
  Batch b{kbtest::normal(dtype, {tokens, experts}, seed), kbtest::array(dtype, {tokens, 1}),
          kbtest::array(KB_I32, {tokens}), kbtest::array(KB_I32, {tokens, active})};
  const Array offset = kbtest::normal(dtype, {experts}, 77);
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
kbtest::Options on_threads(int32_t n) {
  kbtest::Options o;
  o.threads = n;
  return o;
}

Array count(const Array& counts, const Batch& b, const Array& bias, const kbtest::Options& o = {}) {
  std::vector<Array> out{counts};
  kbtest::run(kb::kernel_table<QuantileCountCpu>(), {}, {&counts, &b.scores, &b.cutoff, &b.document, &bias}, out, o);
  return out[0];
}
std::vector<kb_attr> estimator(int64_t active, double ema) {
  return {kb::default_attr("active", active), kb::default_attr("ema", ema)};
}
Array estimate(const Array& counts, const Array& bias, int64_t active, double ema = 0, const kbtest::Options& o = {}) {
  std::vector<Array> out{bias};
  kbtest::run(kb::kernel_table<QuantileEstimateCpu>(), estimator(active, ema), {&counts, &bias}, out, o);
  return out[0];
}
struct Margins {
  Array rows, filled;
};
void append(Margins& m, const Batch& b, const kbtest::Options& o = {}) {
  std::vector<Array> out{m.rows, m.filled};
  kbtest::run(kb::kernel_table<QuantileAppendCpu>(), {}, {&m.rows, &m.filled, &b.scores, &b.cutoff, &b.document}, out,
              o);
  m = {out[0], out[1]};
}
Margins no_margins(uint32_t dtype, int64_t capacity, int64_t experts) {
  return {kbtest::array(dtype, {capacity, experts}), kbtest::array(KB_I32, {1})};
}
Array exact(const Margins& m, const Array& total, const Array& bias, int64_t active, double ema = 0,
            const kbtest::Options& o = {}) {
  std::vector<Array> out{bias};
  kbtest::run(kb::kernel_table<QuantileExactCpu>(), estimator(active, ema), {&m.rows, &m.filled, &total, &bias}, out,
              o);
  return out[0];
}
std::vector<std::vector<double>> counted_margins(const Batch& b) {
  std::vector<std::vector<double>> rows;
  const int64_t experts = b.scores.type.shape[1];
  for (int64_t t = 0; t < b.cutoff.size(); ++t) {
    if (b.document.at(t) < 0) continue;
    rows.emplace_back();
    for (int64_t e = 0; e < experts; ++e) rows.back().push_back(b.scores.at(t * experts + e) - b.cutoff.at(t));
  }
  return rows;
}
double largest_difference(const Array& a, const std::vector<double>& b) {
  double most = 0;
  for (int64_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a.at(i) - b[size_t(i)]));
  return most;
}

template <class T>
void expect_counts_like_reference(uint32_t dtype, int64_t tokens, int64_t experts, int64_t bins) {
  const Array bias = random_bias(dtype, experts);
  const Batch b = made(dtype, tokens, experts, 1, 1, bias, 4);
  Array counts = kbtest::array(KB_I32, {experts, bins});
  for (int64_t i = 0; i < counts.size(); ++i) counts.set(i, double(i % 3));
  std::vector<int> want = values<int>(counts);
  reference::count(values<T>(b.scores), values<T>(b.cutoff), values<int>(b.document), values<T>(bias), bins, want);
  EXPECT_EQ(values<int>(count(counts, b, bias)), want)
      << tokens << " tokens, " << experts << " experts, " << bins << " bins";
}
TEST(QuantileCount, EqualsTheReferenceOverOddSizes) {
  for (int64_t tokens : {1, 4, 33})
    for (int64_t experts : {2, 15, 16, 17, 64, 99})
      for (int64_t bins : {16, 1000}) {
        expect_counts_like_reference<double>(KB_F64, tokens, experts, bins);
        expect_counts_like_reference<float>(KB_F32, tokens, experts, bins);
      }
}

TEST(QuantileCount, PutsNeedsOutsideTheRangeIntoTheLastBins) {
  const Array bias = kbtest::array(KB_F32, {2});
  Batch b{kbtest::array(KB_F32, {2, 2}, {-9, 9, 0, 0}), kbtest::array(KB_F32, {2, 1}, {0, 1}),
          kbtest::array(KB_I32, {2}), kbtest::array(KB_I32, {2, 1})};
  const Array c = count(kbtest::array(KB_I32, {2, 16}), b, bias);
  EXPECT_EQ(c.at(15), 2);  // expert 0 needs 9 and 1
  EXPECT_EQ(c.at(16), 1);  // expert 1 needs -9
  EXPECT_EQ(c.at(31), 1);  // and 1, the upper end itself
}

TEST(QuantileCount, IsTheSameForAnySplitAndAnyThreads) {
  const int64_t tokens = 60, experts = 40, bins = 100;
  const Array bias = random_bias(KB_F32, experts), none = kbtest::array(KB_I32, {experts, bins});
  const Batch all = made(KB_F32, tokens, experts, 3, 1, bias, 7);
  const Array want = count(none, all, bias, on_threads(1));
  EXPECT_EQ(count(none, all, bias, on_threads(5)).bytes, want.bytes);
  Array counts = none;
  for (int64_t begin : {0, 20, 40}) {
    Batch part{kbtest::array(KB_F32, {20, experts}), kbtest::array(KB_F32, {20, 1}), kbtest::array(KB_I32, {20}), {}};
    for (int64_t t = 0; t < 20; ++t) {
      for (int64_t e = 0; e < experts; ++e) part.scores.set(t * experts + e, all.scores.at((begin + t) * experts + e));
      part.cutoff.set(t, all.cutoff.at(begin + t)), part.document.set(t, all.document.at(begin + t));
    }
    counts = count(counts, part, bias);
  }
  EXPECT_EQ(counts.bytes, want.bytes);
}

TEST(QuantileCount, IgnoresRowsPastTheExtent) {
  const Array bias = random_bias(KB_F32, 8), none = kbtest::array(KB_I32, {8, 50});
  Batch b = made(KB_F32, 20, 8, 2, 1, bias);
  b.scores.type.extent = 1;
  kbtest::Options o;
  o.extents = {0, 13};
  Batch cut = b;
  cut.scores.type.extent = 0;
  for (int64_t t = 13; t < 20; ++t) cut.document.set(t, -1);
  EXPECT_EQ(count(none, b, bias, o).bytes, count(none, cut, bias).bytes);
}

TEST(QuantileEstimate, EqualsTheReferenceOverOddSizes) {
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (int64_t experts : {3, 16, 33})
      for (int64_t active : {1, 2})
        for (double ema : {0.0, 0.9}) {
          const Array bias = random_bias(dtype, experts);
          const Array counts =
              count(kbtest::array(KB_I32, {experts, 200}), made(dtype, 131, experts, active, 3, bias, 5), bias);
          const auto want = reference::estimate(values<int>(counts), values<double>(bias), 200, active, ema);
          EXPECT_LE(largest_difference(estimate(counts, bias, active, ema), want), dtype == KB_F64 ? 1e-14 : 1e-6);
        }
}

TEST(QuantileEstimate, StaysWithinABinOfTheExactQuantile) {
  const int64_t tokens = 4000, experts = 32, active = 4, bins = 1000;
  const Array bias = random_bias(KB_F64, experts);
  const Batch b = made(KB_F64, tokens, experts, active, 3, bias);
  const Array got = estimate(count(kbtest::array(KB_I32, {experts, bins}), b, bias), bias, active);
  const auto [low, width] = reference::bin_range(values<double>(bias), bins);
  // Each of the two, and the mean of either, is off by a bin at most.
  EXPECT_LE(largest_difference(got, reference::exact(counted_margins(b), values<double>(bias), active, 0)), 2 * width);
}

TEST(QuantileEstimate, KeepsTheBiasBitForBitWhenNothingWasCounted) {
  const Array bias = random_bias(KB_F32, 8);  // its mean is not 0
  EXPECT_EQ(estimate(kbtest::array(KB_I32, {8, 50}), bias, 2, 0.5).bytes, bias.bytes);
}

TEST(QuantileEstimate, IsCentred) {
  const Array bias = random_bias(KB_F64, 24);
  const Array now = estimate(count(kbtest::array(KB_I32, {24, 100}), made(KB_F64, 50, 24, 3, 3, bias), bias), bias, 3);
  double mean = 0;
  for (int64_t e = 0; e < 24; ++e) mean += now.at(e);
  EXPECT_NEAR(mean, 0, 1e-14);
}

TEST(QuantileExact, EqualsTheReferenceOverSeveralMicroBatches) {
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (int64_t experts : {3, 16, 33})
      for (double ema : {0.0, 0.9}) {
        const Array bias = random_bias(dtype, experts);
        Margins m = no_margins(dtype, 100, experts);
        std::vector<std::vector<double>> rows;
        for (uint64_t k = 0; k < 3; ++k) {
          const Batch b = made(dtype, 33, experts, 2, 10 + k, bias, 4);
          append(m, b);
          for (auto& r : counted_margins(b)) rows.push_back(r);
        }
        EXPECT_EQ(m.filled.at(0), double(rows.size()));
        for (int32_t threads : {1, 4})
          EXPECT_LE(largest_difference(exact(m, m.filled, bias, 2, ema, on_threads(threads)),
                                       reference::exact(rows, values<double>(bias), 2, ema)),
                    dtype == KB_F64 ? 1e-14 : 1e-6);
      }
}

TEST(QuantileExact, LeavesTheTargetLoadAboveTheNewThreshold) {
  // With the cutoffs held fixed, q = m k / n margins exceed the quantile that the new bias stands for; fewer only where
  // several are tied with it, as the margins of all tokens are for which the expert itself was the cutoff.
  const int64_t tokens = 64, experts = 16, active = 4, q = tokens * active / experts;
  const Array bias = kbtest::array(KB_F64, {experts});
  const Batch b = made(KB_F64, tokens, experts, active, 3, bias);
  Margins m = no_margins(KB_F64, tokens, experts);
  append(m, b);
  const Array now = exact(m, m.filled, bias, active);
  const auto rows = counted_margins(b);
  // Centring shifted all by one number: recover it from the first expert, then test the others with it.
  std::vector<double> column;
  for (const auto& r : rows) column.push_back(r[0]);
  std::sort(column.begin(), column.end(), std::greater<>());
  const double shift = -column[size_t(q)] - now.at(0);
  for (int64_t e = 0; e < experts; ++e) {
    int64_t above = 0, tied = 0;
    for (const auto& r : rows) {
      const double over = r[size_t(e)] + now.at(e) + shift;
      above += over > 1e-12, tied += std::abs(over) <= 1e-12;
    }
    EXPECT_LE(above, q) << "expert " << e;
    EXPECT_GT(above + tied, q) << "expert " << e;
  }
}

TEST(QuantileExact, KeepsTheBiasBitForBitWhenNothingWasCounted) {
  const Array bias = random_bias(KB_F32, 8);
  const Margins m = no_margins(KB_F32, 5, 8);
  EXPECT_EQ(exact(m, m.filled, bias, 2, 0.5).bytes, bias.bytes);
}

TEST(QuantileExact, SaysSoWhenAStepDoesNotFit) {
  const Array bias = random_bias(KB_F32, 8);
  Margins m = no_margins(KB_F32, 20, 8);
  append(m, made(KB_F32, 15, 8, 2, 1, bias));
  try {
    append(m, made(KB_F32, 15, 8, 2, 2, bias));
    FAIL() << "30 tokens fitted into 20 rows";
  } catch (const kb::Error& e) {
    EXPECT_NE(std::string(e.what()).find("has 30 tokens but `capacity` of router.quantile holds 20"), std::string::npos)
        << e.what();
  }
}

TEST(QuantileExact, RefusesTokensOfOtherRanks) {
  const Array bias = random_bias(KB_F32, 8);
  Margins m = no_margins(KB_F32, 20, 8);
  append(m, made(KB_F32, 15, 8, 2, 1, bias));
  EXPECT_THROW(exact(m, kbtest::array(KB_I32, {1}, {30}), bias, 2), kb::Error);
}

TEST(Balance, OneStepRemovesMostOfTheOverload) {
  // The same scores routed again with the new bias; a bound far above what was seen (largest load 1.1 times the mean).
  const int64_t tokens = 2048, experts = 64, active = 4;
  Array bias = kbtest::array(KB_F64, {experts});
  auto overload = [&] {
    const Batch b = made(KB_F64, tokens, experts, active, 1, bias);
    const Array none = kbtest::array(KB_I32, {experts});
    std::vector<Array> load{none};
    kbtest::run(kb::kernel_table<ExpertLoadCpu>(), {}, {&none, &b.ids, &b.document}, load);
    bias = estimate(count(kbtest::array(KB_I32, {experts, 1000}), b, bias), bias, active);
    double most = 0, all = 0;
    for (int64_t e = 0; e < experts; ++e) most = std::max(most, load[0].at(e)), all += load[0].at(e);
    EXPECT_EQ(all, tokens * active);
    return most / (double(tokens * active) / experts);
  };
  EXPECT_GT(overload(), 3);
  for (int i = 0; i < 4; ++i) overload();
  EXPECT_LT(overload(), 1.3);
}

TEST(ExpertLoad, AddsAssignmentsOfUsedRowsOnly) {
  const Array load = kbtest::array(KB_I32, {4}, {1, 1, 1, 1}), ids = kbtest::array(KB_I32, {3, 2}, {0, 1, 1, 3, 2, 0});
  const Array document = kbtest::array(KB_I32, {3}, {0, 0, -1});
  std::vector<Array> out{load};
  kbtest::run(kb::kernel_table<ExpertLoadCpu>(), {}, {&load, &ids, &document}, out);
  EXPECT_EQ(values<int>(out[0]), (std::vector<int>{2, 3, 1, 2}));
}

TEST(ExpertLoad, RefusesAnExpertThatDoesNotExist) {
  const Array load = kbtest::array(KB_I32, {2}), ids = kbtest::array(KB_I32, {1, 1}, {2}),
              document = kbtest::array(KB_I32, {1});
  std::vector<Array> out{load};
  EXPECT_THROW(kbtest::run(kb::kernel_table<ExpertLoadCpu>(), {}, {&load, &ids, &document}, out), kb::Error);
}

}  // namespace
