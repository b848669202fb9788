// The recipes that we ship, against the keys of the kit as the fake source lists them.
#include <gtest/gtest.h>

#include "fake_source.h"

namespace kitbash {
namespace {

std::string reference(const std::string& name) { return std::string(KITBASH_RECIPES) + "/reference/" + name + ".toml"; }
Recipe load(const std::string& name) {
  static const FakeSource source;  // a recipe points into it
  try {
    return load_recipe(reference(name), {}, source);
  } catch (const RecipeErrors& e) {
    kb::fail(e.text());
  }
}

TEST(Reference, EveryRecipeLoadsWithoutANote) {
  size_t n = 0;
  for (const auto& f : std::filesystem::directory_iterator(std::string(KITBASH_RECIPES) + "/reference")) {
    if (f.path().extension() != ".toml") continue;
    const Recipe r = load(f.path().stem().string());
    EXPECT_EQ(r.name, f.path().stem().string());
    EXPECT_TRUE(r.notes.empty()) << r.name;
    ++n;
  }
  EXPECT_GE(n, 6u);
}
TEST(Reference, K3HasItsLayersWhereItsConfigurationPutsThem) {
  const Recipe r = load("k3-2.8t");
  ASSERT_EQ(r.model.layers.size(), 93u);
  size_t global = 0;
  for (size_t i = 0; i < 93; ++i) {
    const bool want = (i + 1) % 4 == 0 || i == 92;  // numbered from 1: 4, 8, ..., 92, and 93
    EXPECT_EQ(r.model.layers[i].attention->info->name, want ? "gated-mla" : "kda") << i;
    EXPECT_EQ(r.model.layers[i].ffn->info->name, i == 0 ? "dense" : "latent-moe") << i;
    global += want;
  }
  EXPECT_EQ(global, 24u);
  ASSERT_EQ(r.curriculum.size(), 4u);
  for (const auto& s : r.curriculum) EXPECT_EQ(s.micro_tokens, s.context);
  EXPECT_EQ(r.curriculum[3].context, 1048576);
}
TEST(Reference, AnOverlayKeepsWhatItDoesNotName) {
  const Recipe r = load("hybrid-3b");
  EXPECT_EQ(int_of(*r.model.named.at("global").attention, "v_dim"), 128);
  EXPECT_EQ(int_of(*r.model.named.at("global").ffn, "experts"), 96);
  EXPECT_EQ(r.optimizer->info->name, "muon");
}

}  // namespace
}  // namespace kitbash
