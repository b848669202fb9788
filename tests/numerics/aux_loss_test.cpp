// A loss and a figure that a component publishes through the seam: counted in training, differentiated, absent from evaluation.
#include "fixture.h"

namespace kitbash::test {
namespace {

std::string listener(double factor) {
  return recipe_text(
      kb::text("dim = 6\nlayers = 2\nvocab = 11\npattern = [\"a\"]\nresidual = \"standard\"\n",
               "[model.layer.a]\nattention = { use = \"gated-mla\", heads = 1, kv_rank = 4, nope_dim = 2, ",
               "rope_dim = 2, v_dim = 3 }\nffn = { use = \"dense\", width = 5, activation = { use = ",
               "\"listening\", factor = ", factor, " } }\n"));
}
double published(const Program& p) {
  double sum = 0;
  for (const auto& [name, v] : p.graph().reports)
    if (name.rfind("loss.", 0) == 0) sum += p.scalar(name);
  return sum;
}

TEST(AuxiliaryLoss, is_added_to_the_loss_of_training_and_not_to_that_of_evaluation) {
  Lab lab(listener(0.25));
  lab.randomize();
  const Batch batch = documents({5, 1, 9}, 11);
  Program& micro = lab.micro(Lab::bounds(batch));
  Program& eval = lab.eval(Lab::bounds(batch));
  Lab::run(micro, batch);
  Lab::run(eval, batch);
  EXPECT_GT(published(micro), 1e-3);
  EXPECT_NEAR(micro.scalar("loss"), eval.scalar("loss") + published(micro), 1e-12);
}

TEST(AuxiliaryLoss, appears_once_a_layer_among_the_reports_beside_the_figure) {
  Lab lab(listener(0.25));
  lab.randomize();
  const Batch batch = documents({5, 1, 9}, 11);
  Program& micro = lab.micro(Lab::bounds(batch));
  Lab::run(micro, batch);
  for (const char* layer : {"layers.0", "layers.1"}) {
    const std::string name = std::string(layer) + ".ffn.activation.gate_square";
    ASSERT_TRUE(micro.graph().outputs.count(name) || micro.graph().reports.count(name)) << name;
    EXPECT_NEAR(micro.scalar("loss." + name), 0.25 * micro.scalar(name), 1e-12);
  }
}

TEST(AuxiliaryLoss, has_the_gradient_of_its_central_differences) {
  Lab lab(listener(3));
  lab.randomize();
  const Batch batch = documents({5, 1, 9}, 11);
  Program& micro = lab.micro(Lab::bounds(batch));
  Lab::run(micro, batch);
  const Named gradients = lab.gradients();
  for (const std::string& name : lab.names(Life::param)) {
    const Numbers start = lab.stored(name), g = gradients.at("grad." + name);
    const size_t i = size_t(std::max_element(g.begin(), g.end()) - g.begin());
    auto at = [&](double x) {
      Numbers w = start;
      w[i] += x;
      lab.set(name, w);
      Lab::run(micro, batch);
      return micro.scalar("loss");
    };
    const double h = 1e-5, slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
    lab.set(name, start);
    EXPECT_NEAR(g[i], slope, 1e-7 * std::max(std::abs(g[i]), 1e-2)) << name << " [" << i << "]";
  }
}

TEST(AuxiliaryLoss, moves_the_weights_that_feed_it_in_proportion_to_its_factor) {
  auto gate_gradient = [](double factor) {
    Lab lab(listener(factor));
    lab.randomize();
    const Batch batch = documents({5, 1, 9}, 11);
    Program& micro = lab.micro(Lab::bounds(batch));
    Lab::run(micro, batch);
    for (const auto& [name, g] : lab.gradients())
      if (name.find("layers.1.ffn") != std::string::npos && name.ends_with("w1")) return g;
    return Numbers{};
  };
  const Numbers zero = gate_gradient(0), one = gate_gradient(1), two = gate_gradient(2);
  ASSERT_FALSE(zero.empty());
  for (size_t i = 0; i < zero.size(); ++i)
    EXPECT_NEAR(two[i] - zero[i], 2 * (one[i] - zero[i]), 1e-9 * std::max(1.0, std::abs(two[i])));
}

}  // namespace
}  // namespace kitbash::test
