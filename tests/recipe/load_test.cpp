// What a good recipe becomes.
#include <gtest/gtest.h>

#include "fake_source.h"
#include "recipe/keys.h"

namespace kitbash {
namespace {

TEST(Load, FillsTheModelFromPatternAndAt) {
  Recipes r;
  r.write("good.toml", good_recipe());
  const Recipe x = r.load("good.toml");
  EXPECT_EQ(x.name, "good");
  EXPECT_TRUE(x.notes.empty());
  EXPECT_EQ(x.model.dim, 128);
  EXPECT_EQ(x.model.vocab, 259);
  EXPECT_DOUBLE_EQ(x.model.std, 0.02);
  ASSERT_EQ(x.model.layers.size(), 8u);
  const std::vector<std::string> want{"first", "linear", "linear", "global", "linear", "linear", "linear", "global"};
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(x.model.layers[i].name, want[i]) << i;
  EXPECT_EQ(x.model.layers[1].attention, x.model.layers[2].attention);  // one configuration for a named layer
}
TEST(Load, GivesEveryKeyInTheOrderOfTheManifestWithDefaults) {
  Recipes r;
  r.write("good.toml", good_recipe());
  const Recipe x = r.load("good.toml");
  const ComponentConfig& kda = *x.model.named.at("linear").attention;
  ASSERT_EQ(kda.values.size(), kda.info->fields.size());
  EXPECT_EQ(int_of(kda, "heads"), 4);
  EXPECT_EQ(int_of(kda, "conv"), 4);
  EXPECT_DOUBLE_EQ(real_of(kda, "eps"), 1e-5);
  EXPECT_EQ(std::get<std::string>(value_of(kda, "decay")), "bounded");
  EXPECT_DOUBLE_EQ(real_of(*kda.children.at("decay"), "floor"), -4.0);  // an int is welcome where a float is wanted
  EXPECT_EQ(kda.where.text(), "good.toml:11");
  EXPECT_EQ(x.model.norm->info->name, "rmsnorm");
  EXPECT_EQ(x.model.objective->info->name, "next-token");
  EXPECT_EQ(x.optimizer->children.at("others")->info->name, "adamw");
}
TEST(Load, FillsTrainAndCurriculumWithDefaults) {
  Recipes r;
  r.write("good.toml", good_recipe());
  const Recipe x = r.load("good.toml", {"curriculum.0.batch_tokens=2048"});
  EXPECT_EQ(x.train.seed, 7);
  EXPECT_EQ(x.train.compute, "f32");
  EXPECT_EQ(x.train.recompute, "none");
  EXPECT_DOUBLE_EQ(x.train.clip, 1.0);
  EXPECT_TRUE(x.train.deterministic);
  ASSERT_EQ(x.curriculum.size(), 1u);
  EXPECT_EQ(x.curriculum[0].name, "stage0");
  EXPECT_EQ(x.curriculum[0].micro_tokens, 2048);
  EXPECT_EQ(x.curriculum[0].max_documents, 32);
  EXPECT_EQ(x.curriculum[0].schedule->info->name, "cosine");
}
TEST(Load, TakesTheOnlyNamedLayerWhenThereIsNoPattern) {
  Recipes r;
  r.write("one.toml", R"(kitbash = 1
[model]
dim = 8
layers = 2
vocab = 16
residual = "standard"
layer.only = { attention = { use = "kda", heads = 1, head_dim = 8 }, ffn = { use = "dense", width = 16 } }
[optimizer]
use = "adamw"
[[curriculum]]
context = 8
tokens = 8
batch_tokens = 8
lr = 1
schedule = "cosine"
)");
  const Recipe x = r.load("one.toml");
  EXPECT_EQ(x.name, "one");
  EXPECT_EQ(x.model.layers[1].name, "only");
  EXPECT_EQ(x.curriculum[0].micro_tokens, 8);
  EXPECT_EQ(x.curriculum[0].max_documents, 8);
}
TEST(Load, LikeMergesKeysOfTheSameComponentAndReplacesAnother) {
  Recipes r;
  r.write("good.toml", good_recipe() + std::string(R"([model.layer.wide]
like = "first"
attention = { heads = 8, decay = "softplus" }
)"));
  const Recipe x = r.load("good.toml");
  const LayerConfig& wide = x.model.named.at("wide");
  EXPECT_EQ(int_of(*wide.attention, "heads"), 8);
  EXPECT_EQ(int_of(*wide.attention, "head_dim"), 32);
  EXPECT_EQ(wide.attention->children.at("decay")->info->name, "softplus");
  EXPECT_EQ(wide.ffn->info->name, "dense");
  EXPECT_EQ(x.model.named.at("global").attention->info->name, "gated-mla");
  EXPECT_TRUE(x.notes.empty());  // a replacement in the same file is not a switch
}
TEST(Load, AnEmptyNameLeavesAnOptionalSlotEmpty) {
  Recipes r;
  r.write("good.toml", good_recipe());
  EXPECT_EQ(r.load("good.toml", {"optimizer.use=maybe"}).optimizer->children.size(), 1u);
  const Recipe x = r.load("good.toml", {"optimizer.use=maybe", "optimizer.others="});
  EXPECT_TRUE(x.optimizer->children.empty());
  EXPECT_EQ(std::get<std::string>(value_of(*x.optimizer, "others")), "");
}
TEST(Load, ResolvesPathsAgainstTheFileThatNamesThem) {
  Recipes r;
  r.write("below/base.toml", good_recipe() + std::string("[model.norm]\nuse = \"table\"\nfile = \"a.bin\"\n"));
  r.write("top.toml", "kitbash = 1\nextends = \"below/base.toml\"\n");
  const auto here = std::filesystem::current_path();
  EXPECT_EQ(std::get<std::string>(value_of(*r.load("top.toml").model.norm, "file")), here / "below/a.bin");
  EXPECT_EQ(std::get<std::string>(value_of(*r.load("top.toml", {"model.norm.file=b.bin"}).model.norm, "file")),
            here / "b.bin");
}
TEST(Load, TakesATextUnderTheNameOfWhatItLiesIn) {
  Recipes r;
  const RecipeText text{good_recipe() + std::string("[model.norm]\nuse = \"table\"\n"), "run/checkpoint/recipe"};
  const Recipe x = load_recipe(text, {"model.norm.file=b.bin"}, r.source);
  EXPECT_EQ(x.name, "good");
  EXPECT_EQ(std::get<std::string>(value_of(*x.model.norm, "file")), std::filesystem::current_path() / "b.bin");
  try {
    load_recipe(RecipeText{"kitbash = 2\n[model]\n", text.name}, {}, r.source);
    FAIL();
  } catch (const RecipeErrors& e) {
    EXPECT_EQ(e.text().rfind("run/checkpoint/recipe:1:1: error: ", 0), 0u) << e.text();
  }
}
TEST(Load, ResolvedTextIsWholeAndLoadsToItself) {
  Recipes r;
  r.write("good.toml",
          good_recipe() + std::string("[model.norm]\nuse = \"table\"\nfile = \"a\\\"b\"\nscales = [1, 0.5]\n"));
  for (const auto& set : std::vector<std::vector<std::string>>{
           {}, {"optimizer.use=maybe", "optimizer.others="}, {"name=a \"quoted\"\\name", "curriculum.0.lr=0.1"}}) {
    const Recipe x = r.load("good.toml", set);
    r.write("elsewhere/resolved.toml", x.resolved);
    const Recipe y = r.load("elsewhere/resolved.toml");
    EXPECT_EQ(y.resolved, x.resolved);
    EXPECT_EQ(y.name, x.name);
    EXPECT_EQ(y.model.layers.size(), x.model.layers.size());
    EXPECT_EQ(y.curriculum[0].lr, x.curriculum[0].lr);
  }
  const std::string text = r.load("good.toml").resolved;
  for (const char* want :
       {"gate_rank = 0\n", "at = { -1 = \"global\", 0 = \"first\" }\n", "estimator = \"histogram\"\n",
        "scales = [1.0, 0.5]\n", "sizes = [1, 2]\n", "lr = 0.002\n", "floor = -4.0\n"})
    EXPECT_NE(text.find(want), std::string::npos) << want << text;
}
TEST(Load, KeysOfTheCoreAreDeclaredOnce) {
  for (const auto& table : key_tables())
    for (const auto& f : table.fields) {
      EXPECT_FALSE(f.doc.empty()) << table.name << "." << f.name;
      EXPECT_EQ(int(f.required) + int(f.optional) + int(f.fallback.has_value()), 1) << table.name << "." << f.name;
    }
}
TEST(LoadComponent, ReadsKeysAndSlotsFromASmallFile) {
  Recipes r;
  r.write("c.toml", "heads = 2\nhead_dim = 16\n[decay]\nuse = \"softplus\"\n");
  const auto c = load_component("attention", "kda", "c.toml", {"heads=3"}, r.source);
  EXPECT_EQ(int_of(*c, "heads"), 3);
  EXPECT_EQ(c->children.at("decay")->info->name, "softplus");
  const auto d = load_component("decay", "bounded", "", {}, r.source);
  EXPECT_DOUBLE_EQ(real_of(*d, "floor"), -5.0);
}
TEST(LoadComponent, TellsEveryMistake) {
  Recipes r;
  r.write("c.toml", "heads = 2000\nhead_dmi = 16\nuse = \"kdaa\"\n");
  try {
    load_component("attention", "kda", "c.toml", {"conv=x"}, r.source);
    FAIL();
  } catch (const RecipeErrors& e) {
    EXPECT_EQ(
        e.text(),
        "c.toml:1:1: error: attention.kda needs 'head_dim' (int): of a test\n"
        "c.toml:1:9: error: 'heads' must be in [1, 512] but got 2000\n"
        "c.toml:2:1: error: attention.kda has no key 'head_dmi'; did you mean 'head_dim'?\n"
        "c.toml:3:7: error: 'use' is 'kdaa' but the component asked for is attention.kda\n"
        "--set conv=x: error: 'conv' wants int but got string\n"
        "  note: attention.kda 0.1.0 from /lib/libkb_fake.so accepts: heads, head_dim, conv, gate_rank, eps, std, "
        "decay\n");
  }
  EXPECT_THROW(load_component("attention", "kdaa", "", {}, r.source), RecipeErrors);
  EXPECT_THROW(load_component("attention", "kda", "none.toml", {}, r.source), RecipeErrors);
}
TEST(LoadComponent, HandsOverNotes) {
  Recipes r;
  std::vector<std::string> notes;
  load_component("decay", "bounded", "", {"gate_floor=-3.0"}, r.source, &notes);
  EXPECT_EQ(notes, std::vector<std::string>{"note: decay.bounded: 'gate_floor' is now called 'floor'"});
}

}  // namespace
}  // namespace kitbash
