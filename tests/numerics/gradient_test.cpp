// The gradient of every parameter of a hybrid model against central differences of the evaluation's loss, in double.
#include "fixture.h"

namespace kitbash::test {
namespace {

class Gradients : public ::testing::TestWithParam<std::string> {};

TEST_P(Gradients, OfEveryParameterEqualCentralDifferencesOfTheLoss) {
  Lab lab(recipe_text(hybrid(GetParam())));
  lab.randomize();
  Batch batch = documents({7, 1, 18, 4}, 19);
  for (size_t i = 0; i < batch.weight.size(); ++i) batch.weight[i] *= 0.5 + 0.1 * double(i % 7);  // weights matter too
  Program& micro = lab.micro(Lab::bounds(batch));
  Program& eval = lab.eval(Lab::bounds(batch));
  Lab::run(micro, batch);
  const Named gradients = lab.gradients();
  auto loss = [&] {
    Lab::run(eval, batch);
    return eval.scalar("loss");
  };
  EXPECT_DOUBLE_EQ(loss(), micro.scalar("loss"));

  std::mt19937_64 random(3);
  for (const std::string& name : lab.names(Life::param)) {
    ASSERT_TRUE(gradients.count("grad." + name)) << name << " has no gradient";
    const Numbers& g = gradients.at("grad." + name);
    EXPECT_GT(norm(g), 1e-7) << name << " does not matter: the test shows nothing";
    const Numbers start = lab.stored(name);
    const double size = norm(g) / std::sqrt(double(g.size()));  // of a typical element
    for (int k = 0; k < 3; ++k) {
      const size_t i = k == 0 ? size_t(std::max_element(g.begin(), g.end()) - g.begin()) : size_t(random() % g.size());
      // Five points: the cut-off error falls with h^4, the rounding of the loss (1e-14) grows with 1 / h.
      const double h = 2e-5;
      auto at = [&](double steps) {
        Numbers w = start;
        w[i] += steps * h;
        lab.set(name, w);
        return loss();
      };
      const double slope = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * h);
      lab.set(name, start);
      EXPECT_NEAR(g[i], slope, 1e-7 * std::max({std::abs(g[i]), size, 1e-2})) << name << " [" << i << "]";
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Residuals, Gradients, ::testing::Values(standard, block_attnres));

}  // namespace
}  // namespace kitbash::test
