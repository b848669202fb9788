// Equal thread counts give equal bits; others stay within the rounding of float.
#include "fixture.h"

namespace kitbash::test {
namespace {

struct Seen {
  Named numbers;
  Snapshot bits;
};

Seen two_steps(int threads) {
  // Wide enough that rows, columns and heads are shared out between threads.
  Lab lab(recipe_text(R"(dim = 64
layers = 3
vocab = 67
pattern = ["a", "b", "c"]
residual = { use = "block-attnres", block_layers = 1 }
[model.layer.a]
attention = { use = "kda", heads = 4, head_dim = 16 }
ffn = { use = "latent-moe", experts = 8, active = 2, latent = 32, width = 48, shared = 48 }
[model.layer.b]
like = "a"
attention = { use = "kda", heads = 4, head_dim = 16, decay = "softplus" }
[model.layer.c]
like = "a"
attention = { use = "gated-mla", heads = 4, q_rank = 32, kv_rank = 32, nope_dim = 16, rope_dim = 8, v_dim = 16 }
)",
                      "use = \"muon\""),
          KB_F32, threads);
  const Batch batch = documents({100, 37, 220, 64}, 67);
  Program &micro = lab.micro(Lab::bounds(batch)), &apply = lab.apply();
  Seen seen;
  Lab::run(micro, batch);
  seen.numbers = lab.gradients();
  seen.numbers["loss"] = {micro.scalar("loss")};
  Lab::step(apply, 1e-3);
  Lab::run(micro, batch);  // the bits of the parameters, states and second gradients
  seen.bits = lab.snapshot();
  for (const auto& [name, v] : lab.gradients())
    if (name == "sum.loss") seen.numbers["second " + name] = v;
  return seen;
}

TEST(Determinism, SameThreadsGiveTheSameBits) {
  for (int threads : {1, 2}) EXPECT_EQ(two_steps(threads).bits, two_steps(threads).bits) << threads << " threads";
}

TEST(Determinism, OtherThreadsStayWithinTheRoundingOfFloat) {
  const Seen one = two_steps(1), two = two_steps(2);
  for (const auto& [name, v] : one.numbers) EXPECT_LT(error(two.numbers.at(name), v), 1e-5) << name;
}

}  // namespace
}  // namespace kitbash::test
