// The step is a transaction: it happens as a whole or not at all.
#include "fixture.h"

namespace kitbash::test {
namespace {

const std::vector<Life> lasting{Life::param, Life::model, Life::optimizer};

class Apply : public ::testing::TestWithParam<uint32_t> {
 protected:
  Apply() : lab(recipe_text(hybrid(block_attnres), "use = \"muon\""), GetParam()) {
    lab.randomize();
    micro = &lab.micro(Lab::bounds(batch)), apply = &lab.apply();
    Lab::run(*micro, batch);  // one good step, so that no state is at its start
    Lab::step(*apply, 1e-3);
    EXPECT_EQ(apply->scalar("step_ok"), 1);
    before = lab.snapshot(lasting);
  }
  void expect_refused() {
    Lab::step(*apply, 1e-3, 2);
    EXPECT_EQ(apply->scalar("step_ok"), 0);
    for (const auto& [name, bytes] : lab.snapshot(lasting)) EXPECT_TRUE(bytes == before.at(name)) << name << " changed";
    expect_fills();
  }
  void expect_fills() {
    for (const StoreEntry& e : lab.model.store.entries())
      if (e.life == Life::accumulator || e.life == Life::step) {
        EXPECT_EQ(lab.stored(e.name), Numbers(size_t(kb::elements(e.type)), e.fill)) << e.name;
      }
  }
  const Batch batch = documents({9, 20, 2}, 19);
  Lab lab;
  Program *micro, *apply;
  Snapshot before;
};

TEST_P(Apply, ChangesEveryParameterAndResetsWhatWasGathered) {
  Lab::run(*micro, batch);
  Lab::step(*apply, 1e-3, 2);
  EXPECT_EQ(apply->scalar("step_ok"), 1);
  EXPECT_TRUE(std::isfinite(apply->scalar("grad_norm")) && std::isfinite(apply->scalar("loss")));
  const Snapshot now = lab.snapshot({Life::param, Life::optimizer});
  for (const auto& [name, bytes] : now) EXPECT_FALSE(bytes == before.at(name)) << name << " did not change";
  EXPECT_FALSE(lab.snapshot({Life::model}).empty());
  expect_fills();
}

TEST_P(Apply, ReportsTheNormOfTheMeanGradientAndTheMeanLoss) {
  Lab::run(*micro, batch);
  double squares = 0;
  for (const auto& [name, v] : lab.gradients())
    if (!name.compare(0, 5, "grad.")) squares += norm(v) * norm(v);
  const double weight = lab.stored("sum.weight")[0], loss = lab.stored("sum.loss")[0];
  EXPECT_EQ(weight, 28);
  Lab::step(*apply, 0, 2);
  EXPECT_NEAR(apply->scalar("grad_norm"), std::sqrt(squares) / weight, 1e-5 * std::sqrt(squares) / weight);
  EXPECT_NEAR(apply->scalar("loss"), loss / weight, 1e-6 * loss / weight);
}

TEST_P(Apply, WithNotANumberInAnyGradientChangesNothing) {
  for (const char* name : {"grad.embed", "grad.layers.1.ffn.w1", "grad.layers.0.attn.A_log", "sum.loss"})
    for (const double bad : {double(NAN), double(INFINITY)}) {
      Lab::run(*micro, batch);
      Numbers g = lab.stored(name);
      g[g.size() / 2] = bad;
      lab.set(name, g);
      expect_refused();
    }
  Lab::run(*micro, batch);  // and the next step is as good as ever
  Lab::step(*apply, 1e-3, 2);
  EXPECT_EQ(apply->scalar("step_ok"), 1);
}

TEST_P(Apply, WithoutACountedTokenChangesNothing) {
  Batch nothing = batch;
  std::fill(nothing.weight.begin(), nothing.weight.end(), 0);
  Batch empty;
  empty.cu = {0, 0, 0, 0};
  for (const Batch& b : {nothing, empty}) {
    Lab::run(*micro, b);
    for (const auto& [name, v] : lab.gradients()) EXPECT_EQ(norm(v), 0) << name;
    expect_refused();
  }
}

TEST_P(Apply, AnEmptyMicroBatchAmongOthersCountsNowhere) {
  Batch empty;
  empty.cu = {0, 0, 0, 0};
  Lab::run(*micro, batch);
  const Snapshot gathered = lab.snapshot({Life::accumulator, Life::step});
  Lab::run(*micro, empty);
  for (const auto& [name, v] : lab.gradients()) EXPECT_TRUE(finite(v)) << name;
  for (const auto& [name, bytes] : lab.snapshot({Life::accumulator, Life::step}))
    EXPECT_TRUE(bytes == gathered.at(name)) << name << " changed";
}

TEST_P(Apply, GradientsDoNotDependOnTheNumberOfMicroBatches) {
  const Batch all = documents({9, 20, 2, 41, 1, 17, 33, 8}, 19, 17);
  Named whole, counted;
  for (int64_t parts : {1, 2, 4}) {
    lab.clear();
    Program& m = lab.micro(Lab::bounds(all));  // one program, as a trainer has
    for (int64_t i = 0; i < parts; ++i) Lab::run(m, all.part(8 * i / parts, 8 * (i + 1) / parts));
    if (parts == 1) {
      whole = lab.gradients(), counted = lab.stored(Life::step);
      continue;
    }
    EXPECT_LT(error(lab.gradients(), whole), GetParam() == KB_F64 ? 1e-12 : 1e-6) << parts;
    for (const auto& [name, v] : lab.stored(Life::step)) EXPECT_LT(error(v, counted.at(name)), 1e-6) << name;
  }
}

TEST_P(Apply, ClipsTheNormOfTheGradient) {
  const std::string sgd_like =
      "use = \"adamw\"\neps = 1.0\nbeta1 = 0.0\nbeta2 = 0.0\ndecay = 0.0";  // w - lr g / (|g| + 1)
  Named moved;
  double size = 0;
  for (const char* clip : {"0", "0.01"}) {
    Lab l(recipe_text(hybrid(standard), sgd_like, std::string("clip = ") + clip), GetParam());
    l.randomize();
    const Numbers start = l.stored("lm_head");
    Program &m = l.micro(Lab::bounds(batch)), &a = l.apply();
    Lab::run(m, batch);
    const Numbers g = l.stored("grad.lm_head");
    Lab::step(a, 1, 1);
    size = a.scalar("grad_norm");
    ASSERT_GT(size, 0.1);
    const double scale = (*clip == '0' && !clip[1] ? 1 : 0.01 / size) / 28;
    Numbers want = start;
    for (size_t i = 0; i < want.size(); ++i) want[i] -= g[i] * scale / (std::abs(g[i] * scale) + 1);
    EXPECT_LT(error(l.stored("lm_head"), want), GetParam() == KB_F64 ? 1e-12 : 1e-6) << "clip " << clip;
  }
}
INSTANTIATE_TEST_SUITE_P(Types, Apply, ::testing::Values(KB_F64, KB_F32),
                         [](const auto& p) { return std::string(kb::dtype_name(p.param)); });

}  // namespace
}  // namespace kitbash::test
