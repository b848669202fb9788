#include "cosine.h"

#include <gtest/gtest.h>

namespace {

Cosine made(double warmup, double floor) {
  Cosine c;
  c.warmup = warmup, c.floor = floor;
  return c;
}

struct Row {
  double warmup, floor;
  int64_t step, steps;
  double want;
};
void expect(const std::vector<Row>& rows) {
  for (const Row& r : rows)
    EXPECT_NEAR(made(r.warmup, r.floor).at(r.step, r.steps), r.want, 1e-14)
        << "warmup " << r.warmup << ", floor " << r.floor << ", step " << r.step << " of " << r.steps;
}

TEST(Cosine, WarmsUpLinearlyFromTheFirstStepOn) {
  expect({{0.1, 0.1, 0, 100, 0.1}, {0.1, 0.1, 1, 100, 0.2}, {0.1, 0.1, 8, 100, 0.9}, {0.1, 0.1, 9, 100, 1.0}});
}

TEST(Cosine, FollowsHalfACosineAfterThePeak) {
  // Peak at step 9, floor at step 99: the middle of 90 steps is 54, its third 39 and 69.
  expect({{0.1, 0.1, 54, 100, 0.55},
          {0.1, 0.1, 39, 100, 0.775},
          {0.1, 0.1, 69, 100, 0.325},
          {0.1, 0.1, 10, 100, 0.1 + 0.45 * (1 + std::cos(M_PI / 90))}});
}

TEST(Cosine, EndsAtTheFloorExactly) {
  for (int64_t steps : {2, 3, 7, 100, 1001, 1000000})
    for (double floor : {0.0, 0.1, 0.3, 1.0}) EXPECT_EQ(made(0.01, floor).at(steps - 1, steps), floor) << steps;
}

TEST(Cosine, StartsAtThePeakWithoutWarmUp) {
  expect({{0, 0.1, 0, 11, 1.0}, {0, 0.1, 5, 11, 0.55}, {0, 0.1, 10, 11, 0.1}, {0.01, 0.1, 0, 40, 1.0}});
}

TEST(Cosine, RoundsTheStepsOfWarmUp) {
  // 0.07 * 100 is 7.000000000000001 in binary: still seven steps. 2.5 steps are three.
  expect({{0.07, 0, 6, 100, 1.0}, {0.07, 0, 0, 100, 1.0 / 7}, {0.05, 0, 0, 50, 1.0 / 3}, {0.05, 0, 2, 50, 1.0}});
}

TEST(Cosine, IsFiniteInTheShortestRuns) {
  expect({{0, 0.1, 0, 1, 1.0},
          {0.99, 0.1, 0, 1, 1.0},
          {0.5, 0.1, 0, 2, 1.0},
          {0.5, 0.1, 1, 2, 0.1},
          {0.99, 0.1, 9, 10, 1.0}});
}

TEST(Cosine, NeverRisesAfterThePeak) {
  const Cosine c = made(0.01, 0.1);
  for (int64_t i = 10; i < 1000; ++i) EXPECT_LE(c.at(i, 1000), c.at(i - 1, 1000)) << i;
}

}  // namespace
