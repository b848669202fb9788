// Recompute trades time for memory and changes no number.
#include "fixture.h"

namespace kitbash::test {
namespace {

TEST(Recompute, OfBlocksLowersTheWorkspaceThreefoldAndChangesNoGradient) {
  const std::string model = R"(
dim = 16
layers = 64
vocab = 19
pattern = ["linear", "linear", "linear", "global"]
residual = "standard"
[model.layer.linear]
attention = { use = "kda", heads = 2, head_dim = 8 }
ffn = { use = "latent-moe", experts = 4, active = 2, latent = 8, width = 12, shared = 16 }
[model.layer.global]
like = "linear"
attention = { use = "gated-mla", heads = 2, q_rank = 8, kv_rank = 8, nope_dim = 8, rope_dim = 4, v_dim = 8 }
)";
  const Batch batch = documents({40, 25, 31}, 19);
  int64_t plain = 0;
  Named gradients;
  for (const std::string recompute : {"none", "light", "block"}) {
    Lab lab(recipe_text(model, "use = \"adamw\"", "recompute = \"" + recompute + "\""));
    Program& micro = lab.micro(Lab::bounds(batch));
    Lab::run(micro, batch);
    const Named now = lab.gradients();
    if (gradients.empty()) {
      gradients = now, plain = micro.plan().arena_bytes;
    } else {
      EXPECT_LT(error(now, gradients), 1e-12);
      EXPECT_GE(double(plain) / double(micro.plan().arena_bytes), recompute == "block" ? 3 : 1.2)
          << recompute << " " << plain << " -> " << micro.plan().arena_bytes;
    }
  }
}

}  // namespace
}  // namespace kitbash::test
