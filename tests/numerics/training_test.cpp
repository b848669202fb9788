// The parts together learn.
#include "fixture.h"

namespace kitbash::test {
namespace {

class Training : public ::testing::TestWithParam<std::string> {};

TEST_P(Training, ThirtyStepsOnOneBatchHalveTheLoss) {
  Lab lab(recipe_text(hybrid(block_attnres), GetParam()), KB_F32, 1);
  const Batch batch = documents({20, 31, 13}, 19);
  Program &micro = lab.micro(Lab::bounds(batch)), &apply = lab.apply();
  double first = 0, last = 0;
  for (int step = 1; step <= 30; ++step) {
    Lab::run(micro, batch);
    last = micro.scalar("loss");
    if (step == 1) first = last;
    Lab::step(apply, 2e-2, step);
    ASSERT_EQ(apply.scalar("step_ok"), 1) << "step " << step;
  }
  EXPECT_NEAR(first / 61, std::log(19), 0.1);  // nothing known yet
  EXPECT_LT(last, first / 2);
}
INSTANTIATE_TEST_SUITE_P(Optimizers, Training, ::testing::Values("use = \"adamw\"", "use = \"muon\""));

}  // namespace
}  // namespace kitbash::test
