// Gates at their ends: the chunked kernels in float against the recurrent one in double.
#include "fixture.h"

namespace kitbash::test {
namespace {

constexpr int64_t heads = 2, head_dim = 5;

struct Extreme {
  const char* name;
  const char* decay;
  double bias;  // added to dt_bias: z is near it; 0: half of the channels at +50, half at -50
  double a_log;
};

class Extremes : public ::testing::TestWithParam<Extreme> {
 protected:
  static std::string text() {
    return recipe_text(
        "dim = 12\nlayers = 2\nvocab = 19\nresidual = \"standard\"\n[model.layer.one]\nattention = { use = \"kda\", "
        "heads = 2, head_dim = 5, decay = \"" +
        std::string(GetParam().decay) + "\" }\nffn = { use = \"dense\", width = 10 }\n");
  }
  static void prepare(Lab& lab) {
    lab.randomize();
    for (const StoreEntry& e : lab.model.store.entries()) {  // both labs get the same numbers: those of float
      if (e.life != Life::param) continue;
      Numbers v = lab.stored(e.name);
      for (size_t i = 0; i < v.size(); ++i) {
        if (e.name.find("dt_bias") != std::string::npos)
          v[i] += GetParam().bias != 0 ? GetParam().bias : i % 2 ? 50 : -50;
        if (e.name.find("A_log") != std::string::npos) v[i] = GetParam().a_log;
        v[i] = double(float(v[i]));
      }
      lab.set(e.name, v);
    }
  }
};

TEST_P(Extremes, AreFiniteAndRightInFloat) {
  const Batch batch = documents({75, 20}, 19, 13);
  Lab wide(text(), KB_F64), narrow(text(), KB_F32);
  prepare(wide), prepare(narrow);

  Bounds one;
  one.tokens = 1, one.documents = 1, one.slots = 2, one.capacity = 1;
  Program& decode = wide.serve(true, one);
  EXPECT_EQ(error_of([&] {
              for (const Choice& c : decode.choices())
                if (c.kernel && !std::strcmp(c.kernel->op, "kda") && std::strcmp(c.kernel->name, "recurrent"))
                  kb::fail(c.kernel->name);
            }),
            "no error");
  Numbers want;
  for (int32_t d = 0; d < 2; ++d)
    for (int32_t t = batch.cu[size_t(d)]; t < batch.cu[size_t(d) + 1]; ++t) {
      Batch b;
      b.tokens = {batch.tokens[size_t(t)]}, b.target = {0}, b.weight = {0}, b.cu = {0, 1};
      Lab::run(decode, b, {t - batch.cu[size_t(d)]}, {d});
      const Numbers l = Lab::logits(decode, 1);
      want.insert(want.end(), l.begin(), l.end());
    }
  ASSERT_TRUE(finite(want));

  for (Lab* lab : {&wide, &narrow}) {
    Program &eval = lab->eval(Lab::bounds(batch)),
            &micro = lab->add(lab->model.micro(Lab::bounds(batch), lab->options), ArenaMode::planned, false);
    Lab::run(eval, batch);
    // In float a decay of exp(-a) with a rounded logit z is off by 1e-7 exp(A_log) |z| relatively: the steepest case
    // gives 3e-5 here, 1e-3 in gradients.
    EXPECT_LT(error(Lab::logits(eval, batch.size()), want), lab == &wide ? 1e-13 : 1e-4);
    Lab::feed(micro, batch);
    EXPECT_EQ(micro.run(Check::finite).value_or("finite"), "finite");
  }
  EXPECT_LT(error(narrow.gradients(), wide.gradients()), 5e-3);
  const Named w = wide.gradients(), n = narrow.gradients();
  for (const char* name :
       {"grad.embed", "grad.layers.0.attn.v_proj", "grad.layers.0.attn.k_proj", "grad.layers.1.attn.q_proj"})
    EXPECT_LT(error(n.at(name), w.at(name)), 1e-3) << name;
}
INSTANTIATE_TEST_SUITE_P(Gates, Extremes,
                         ::testing::Values(Extreme{"open", "bounded", 50, 0}, Extreme{"shut", "bounded", -50, 0},
                                           Extreme{"both", "bounded", 0, 0}, Extreme{"steep", "bounded", 1, 6},
                                           Extreme{"steep_ends", "bounded", 0, 6}, Extreme{"flat", "bounded", 0, -6},
                                           Extreme{"mild", "softplus", -50, 0}, Extreme{"fierce", "softplus", 50, 2.77},
                                           Extreme{"mild_and_fierce", "softplus", 0, 2.77},
                                           Extreme{"steep", "softplus", 1, 6}, Extreme{"ordinary", "softplus", -3, 1}),
                         [](const auto& p) { return std::string(p.param.decay) + "_" + p.param.name; });

}  // namespace
}  // namespace kitbash::test
