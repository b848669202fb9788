#include "wsd.h"

#include <gtest/gtest.h>

namespace {

Wsd made(double warmup, double decay, double floor) {
  Wsd w;
  w.warmup = warmup, w.decay = decay, w.floor = floor;
  return w;
}

struct Row {
  double warmup, decay, floor;
  int64_t step, steps;
  double want;
};
void expect(const std::vector<Row>& rows) {
  for (const Row& r : rows)
    EXPECT_NEAR(made(r.warmup, r.decay, r.floor).at(r.step, r.steps), r.want, 1e-14)
        << "warmup " << r.warmup << ", decay " << r.decay << ", floor " << r.floor << ", step " << r.step << " of "
        << r.steps;
}

TEST(Wsd, WarmsUpLinearlyFromTheFirstStepOn) {
  expect({{0.1, 0.2, 0.1, 0, 100, 0.1}, {0.1, 0.2, 0.1, 8, 100, 0.9}, {0.1, 0.2, 0.1, 9, 100, 1.0}});
}

TEST(Wsd, StaysAtThePeakUntilTheDecay) {
  expect({{0.1, 0.2, 0.1, 10, 100, 1.0}, {0.1, 0.2, 0.1, 50, 100, 1.0}, {0.1, 0.2, 0.1, 79, 100, 1.0}});
}

TEST(Wsd, DecaysInAStraightLineThatLeavesThePeakAtOnce) {
  expect({{0.1, 0.2, 0.1, 80, 100, 0.955}, {0.1, 0.2, 0.1, 89, 100, 0.55}, {0.1, 0.2, 0.1, 98, 100, 0.145}});
}

TEST(Wsd, EndsAtTheFloorExactly) {
  for (int64_t steps : {10, 17, 100, 1001, 1000000})
    for (double floor : {0.0, 0.1, 0.3, 1.0}) EXPECT_EQ(made(0.01, 0.1, floor).at(steps - 1, steps), floor) << steps;
}

TEST(Wsd, NeedsNoWarmUpAndNoDecay) {
  expect({{0, 0.5, 0, 0, 10, 1.0},
          {0, 0, 0, 0, 10, 1.0},
          {0, 0, 0, 9, 10, 1.0},
          {0, 1, 0.1, 9, 10, 0.1},
          {0, 1, 0.1, 0, 10, 0.91}});
}

TEST(Wsd, IsFiniteInTheShortestRuns) {
  // Shares of less than half a step round to none; where both borders round up, the warm-up wins.
  expect({{0.01, 0.1, 0.1, 0, 1, 1.0},
          {0.5, 0.5, 0.1, 0, 1, 1.0},
          {0.5, 0.5, 0.1, 1, 3, 1.0},
          {0.5, 0.5, 0.1, 2, 3, 0.1}});
}

TEST(Wsd, RefusesSharesThatOverlap) {
  EXPECT_NO_THROW(made(0.5, 0.5, 0).check());
  EXPECT_THROW(made(0.6, 0.5, 0).check(), kb::Error);
}

}  // namespace
