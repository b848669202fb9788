// Documents in one batch do not see each other, unused rows count nowhere, and it does not matter where values lie.
#include "fixture.h"

namespace kitbash::test {
namespace {

const Batch& ragged() {  // lengths on both sides of the chunks of 16 and 64
  static const Batch b = documents({5, 17, 1, 16, 66, 2}, 19, 5);
  return b;
}

class Packing : public ::testing::TestWithParam<std::string> {};

TEST_P(Packing, PackedDocumentsEqualSeparateOnes) {
  Lab lab(recipe_text(hybrid(GetParam())));
  lab.randomize();
  const Batch& all = ragged();
  Program& eval = lab.eval(Lab::bounds(all));
  Lab::run(eval, all);
  const Numbers logits = Lab::logits(eval, all.size());
  Lab::run(lab.micro(Lab::bounds(all)), all);
  const Named packed = lab.gradients(), counted = lab.stored(Life::step);
  EXPECT_GT(norm(packed.at("grad.embed")), 1e-3);

  lab.clear();
  Numbers separate;
  for (int64_t d = 0; d < all.documents(); ++d) {
    const Batch one = all.part(d, d + 1);
    Program& e = lab.eval(Lab::bounds(one));
    Lab::run(e, one);
    const Numbers l = Lab::logits(e, one.size());
    separate.insert(separate.end(), l.begin(), l.end());
    Lab::run(lab.micro(Lab::bounds(one)), one);
  }
  EXPECT_LT(error(logits, separate), 1e-12);
  EXPECT_LT(error(packed, lab.gradients()), 1e-11);
  for (const auto& [name, v] : lab.stored(Life::step))  // integers and maxima
    EXPECT_LT(error(counted.at(name), v), 1e-12) << name;
}

TEST_P(Packing, UnusedRowsChangeNoLossGradientOrBias) {
  const Batch& batch = ragged();
  Named losses, gradients, biases;
  for (const int64_t bound : {batch.size(), batch.size() * 10 / 7}) {
    Lab lab(recipe_text(hybrid(GetParam())));
    lab.randomize();
    const Bounds b = Lab::bounds(batch, bound, batch.documents() + (bound > batch.size() ? 3 : 0));
    Program &eval = lab.eval(b), &micro = lab.micro(b), &apply = lab.apply();
    Lab::run(eval, batch);
    Lab::run(micro, batch);
    Named now = lab.gradients();
    now["loss"] = {eval.scalar("loss"), micro.scalar("loss")};
    now["logits"] = Lab::logits(eval, batch.size());
    Lab::step(apply, 0);
    EXPECT_EQ(apply.scalar("step_ok"), 1);
    const Named after = lab.stored(Life::model);
    EXPECT_GT(norm(after.at("layers.1.ffn.router.bias")), 1e-6);
    if (gradients.empty()) {
      gradients = now, biases = after;
    } else {
      EXPECT_LT(error(now, gradients), 1e-12);
      EXPECT_LT(error(after, biases), 1e-12);
    }
  }
}

// One step, an evaluation, a prefill and a decode; every output and every stored byte.
Snapshot life_of_a_model(const std::string& residual, ArenaMode mode) {
  Lab lab(recipe_text(hybrid(residual), "use = \"muon\""));
  lab.randomize();
  const Batch batch = documents({20, 3, 9}, 19), one = documents({1, 1, 1}, 19, 9);
  const Bounds b = Lab::bounds(batch, 40, 4);
  Bounds serving = b, decoding = Lab::bounds(one);
  serving.slots = decoding.slots = 4, serving.capacity = decoding.capacity = 24;
  Program &micro = lab.micro(b, mode), &eval = lab.eval(b, mode), &apply = lab.apply(mode);
  Program &prefill = lab.serve(false, serving, mode), &decode = lab.serve(true, decoding, mode);
  Snapshot seen;
  auto look = [&](const std::string& when, const Program& p, int64_t rows) {
    for (const auto& [name, v] : p.graph().outputs) {
      const kb_type& t = p.graph().type(v);
      const int64_t bytes = t.extent ? type_bytes(t) / t.shape[0] * rows : type_bytes(t);
      seen[when + " " + name] = std::string(static_cast<const char*>(p.output(name)), size_t(bytes));
    }
    for (const auto& [name, bytes] : lab.snapshot()) seen[when + " " + name] = bytes;
  };
  for (int twice = 0; twice < 2; ++twice) {
    const std::string round = twice ? "second " : "first ";
    Lab::run(micro, batch), look(round + "micro", micro, batch.size());
    Lab::run(micro, batch), look(round + "micro again", micro, batch.size());
    Lab::step(apply, 1e-2, 1 + twice), look(round + "apply", apply, 0);
    Lab::run(eval, batch), look(round + "eval", eval, batch.size());
    Lab::run(prefill, batch, {0, 0, 0}, {2, 0, 3}), look(round + "prefill", prefill, batch.size());
    Lab::run(decode, one, {20, 3, 9}, {2, 0, 3}), look(round + "decode", decode, one.size());
  }
  return seen;
}

TEST_P(Packing, PoisonedAndSeparateArenasGiveTheBitsOfThePlannedOne) {
  const Snapshot planned = life_of_a_model(GetParam(), ArenaMode::planned);
  for (ArenaMode mode : {ArenaMode::separate, ArenaMode::poison}) {
    const Snapshot other = life_of_a_model(GetParam(), mode);
    ASSERT_EQ(planned.size(), other.size());
    for (const auto& [name, bytes] : planned)
      EXPECT_TRUE(bytes == other.at(name)) << name << " differs in arena mode " << int(mode);
  }
}
TEST_P(Packing, RowRunsGiveTheNumbersOfWholeNodes) {
  const Batch batch = documents({200, 3, 90}, 19);  // more rows than one tile
  Named first;
  for (bool by_rows : {true, false}) {
    Lab lab(recipe_text(hybrid(GetParam())));
    lab.randomize();
    const Bounds b = Lab::bounds(batch, 400);
    Program& micro = lab.add(lab.model.micro(b, lab.options), ArenaMode::planned, by_rows);
    EXPECT_EQ(micro.plan().runs.empty(), !by_rows);
    Lab::run(micro, batch);
    Named now = lab.gradients();
    for (const auto& [name, v] : lab.stored(Life::step)) now[name] = v;
    if (first.empty()) first = now;
    EXPECT_LT(error(now, first), 1e-11);
  }
}
INSTANTIATE_TEST_SUITE_P(Residuals, Packing, ::testing::Values(standard, block_attnres));

}  // namespace
}  // namespace kitbash::test
