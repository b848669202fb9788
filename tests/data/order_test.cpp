#include "data/order.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kitbash/error.h"

namespace kitbash {
namespace {

TEST(Order, EverySizeIsPermutedWhole) {
  for (int64_t count = 1; count <= 300; ++count) {
    std::vector<bool> seen(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t to = permuted(7, i, count);
      ASSERT_TRUE(to >= 0 && to < count);
      ASSERT_FALSE(seen[size_t(to)]) << count << " " << i;
      seen[size_t(to)] = true;
    }
  }
}
TEST(Order, SeedsGiveOrdersThatShareLittle) {
  const int64_t n = 10000;
  int64_t same = 0, kept = 0, neighbours = 0;
  for (int64_t i = 0; i < n; ++i) {
    same += permuted(1, i, n) == permuted(2, i, n);
    kept += permuted(1, i, n) == i;
    neighbours += i && std::abs(permuted(1, i, n) - permuted(1, i - 1, n)) == 1;
  }
  // One, one and two are expected of random orders; ten is out of reach of chance (Poisson, below 1e-4).
  EXPECT_LT(same, 10);
  EXPECT_LT(kept, 10);
  EXPECT_LT(neighbours, 10);
}
TEST(Order, LargeCountsNeedNoArray) {
  const int64_t n = int64_t(1) << 50;
  for (int64_t i = 0; i < 100; ++i) EXPECT_LT(permuted(3, i, n), n);
  EXPECT_THROW(permuted(3, n, n), kb::Error);
  EXPECT_THROW(permuted(3, -1, n), kb::Error);
}
TEST(Order, EveryStretchOfDrawsHasTheShares) {
  const std::vector<double> weight{1, 2, 0.5};
  for (const int64_t from : {0, 17, 1000000}) {
    std::vector<double> drawn(3);
    for (int64_t n = 0; n < 2000; ++n) {
      ++drawn[drawn_source(5, from + n, weight)];
      // The discrepancy of the golden-ratio sequence is below 1 + ln(n) (Kuipers and Niederreiter), on either side.
      for (size_t i = 0; i < 3; ++i)
        EXPECT_LE(std::abs(drawn[i] - double(n + 1) * weight[i] / 3.5), 2 * (1 + std::log(double(n + 1))));
    }
  }
}

}  // namespace
}  // namespace kitbash
