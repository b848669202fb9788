// Golden texts: every mistake at once, by position, with the nearest name.
#include <gtest/gtest.h>

#include "fake_source.h"

namespace kitbash {
namespace {

std::string with(const std::string& from, const std::string& to) {
  std::string s = good_recipe();
  const size_t at = s.find(from);
  if (at == std::string::npos) kb::fail("the good recipe has no '", from, "'");
  return s.replace(at, from.size(), to);
}
std::string errors_with(const std::string& from, const std::string& to) {
  Recipes r;
  r.write("r.toml", with(from, to));
  return r.errors("r.toml");
}

TEST(Errors, FiveMistakesShowFiveErrorsInOrder) {
  Recipes r;
  r.write("five.toml", R"(kitbash = 1
[model]
dim = "128"
layers = 4
vocab = 259
residual = { use = "block-attnres", block_layers = 4096 }
[model.layer.linear]
attention = { use = "kda", heads = 4, head_dmi = 32, head_dim = 32 }
ffn = { use = "dens", width = 256 }
[optimizer]
use = "muon"
[[curriculum]]
context = 256
tokens = 1000000
lr = 2e-3
schedule = "cosine"
)");
  EXPECT_EQ(r.errors("five.toml"),
            "five.toml:3:7: error: 'dim' wants int but got string\n"
            "five.toml:6:52: error: 'block_layers' must be in [1, 1024] but got 4096\n"
            "five.toml:8:39: error: attention.kda has no key 'head_dmi'; did you mean 'head_dim'?\n"
            "five.toml:9:15: error: there is no ffn 'dens'; did you mean 'dense'?\n"
            "five.toml:12:1: error: a curriculum stage needs 'batch_tokens' (int): tokens a step; a multiple of "
            "micro_tokens\n"
            "  note: attention.kda 0.1.0 from /lib/libkb_fake.so accepts: heads, head_dim, conv, gate_rank, eps, std, "
            "decay\n");
}
TEST(Errors, AMistakeInALayerIsToldOnceThoughOthersAreLikeIt) {
  EXPECT_EQ(errors_with("experts = 16", "experts = 1.5"), "r.toml:12:39: error: 'experts' wants int but got float\n");
}
TEST(Errors, NameWrongComponentsAndKinds) {
  EXPECT_EQ(errors_with("\"kda\"", "\"kdaa\""),
            "r.toml:11:21: error: there is no attention 'kdaa'; did you mean 'kda'?\n");
  EXPECT_EQ(errors_with("\"kda\"", "\"attention.kda\""),
            "r.toml:11:21: error: there is no attention 'attention.kda'; write 'kda'\n");
  EXPECT_EQ(errors_with("\"kda\"", "\"dense\""),
            "r.toml:11:21: error: there is no attention 'dense': 'dense' is of kind ffn; there are: gated-mla, kda\n");
  EXPECT_EQ(errors_with("\"kda\"", "\"twice\""),
            "r.toml:11:21: error: two plugins provide attention.twice: a.so and b.so\n");
  EXPECT_EQ(errors_with("\"kda\"", "3"), "r.toml:11:21: error: 'use' wants string but got int\n");
  EXPECT_EQ(errors_with("{ use = \"bounded\", floor = -4 }", "-4"),
            "r.toml:11:62: error: 'decay' wants a component of kind decay (a name, or { use = NAME }) but got int\n");
}
TEST(Errors, MissingKeysNameTypeAndMeaning) {
  EXPECT_EQ(errors_with("head_dim = 32, ", ""),
            "r.toml:11:21: error: attention.kda needs 'head_dim' (int): of a test\n");
  EXPECT_EQ(errors_with("use = \"block-attnres\", ", ""),
            "r.toml:9:12: error: 'residual' needs 'use' (string): a component of kind residual\n");
  EXPECT_EQ(errors_with("residual = { use = \"block-attnres\", block_layers = 4 }\n", ""),
            "r.toml:3:1: error: model needs 'residual' (a component of kind residual): how layers are joined along the "
            "depth\n");
  EXPECT_EQ(errors_with("use = \"muon\"\n", ""),
            "r.toml:19:1: error: 'optimizer' needs 'use' (string): a component of kind optimizer\n");
  EXPECT_EQ(errors_with("\"muon\"", "\"bare\""),
            "r.toml:20:7: error: optimizer.bare needs 'others' (a component of kind optimizer): of a test\n");
}
TEST(Errors, TheWholeRecipeMissing) {
  Recipes r;
  r.write("empty.toml", "");
  EXPECT_EQ(
      r.errors("empty.toml"),
      "empty.toml:1:1: error: a recipe needs 'kitbash = 1', the number of its format\n"
      "empty.toml:1:1: error: a recipe needs 'model' (table): what is trained\n"
      "empty.toml:1:1: error: a recipe needs 'optimizer' (a component of kind optimizer): how weights are stepped\n"
      "empty.toml:1:1: error: a recipe needs 'curriculum' (array of tables): stages, in order; at least one\n");
}
TEST(Errors, FormatNumber) {
  EXPECT_EQ(errors_with("kitbash = 1", "kitbash = 2"),
            "r.toml:1:11: error: 'kitbash' must be 1, the recipe format of this program, but got 2\n");
}
TEST(Errors, SyntaxHasAPosition) {
  const std::string e = errors_with("dim = 128", "dim = = 128");
  EXPECT_EQ(e,
            "r.toml:4:7: error: the text must be TOML but its value cannot be read: could not determine value type\n");
  EXPECT_EQ(errors_with("dim = 128", "dim = tru\n"),
            "r.toml:4:10: error: the text must be TOML but its boolean cannot be read: expected 'true', saw 'tru '\n");
}
// The parser and both trees go one call deeper a level.
TEST(Errors, NestingWithoutBoundIsRefusedBeforeItIsParsed) {
  std::string names = "a", brackets(20000, '[');
  for (int i = 0; i < 20000; ++i) names += ". \"a\"";
  EXPECT_EQ(errors_with("[train]", "[" + names + "]"),
            "r.toml:21:158: error: a key must have at most 32 names between its dots but has more\n");
  EXPECT_EQ(errors_with("seed = 7", "seed = " + brackets),
            "r.toml:22:40: error: at most 32 brackets may be open at once but there are more\n");
  // What lies in strings and comments does not count, nor do the dots of numbers in a list.
  std::string list = "[0.5";
  for (int i = 0; i < 100; ++i) list += ", 1.5";
  Recipes r;
  r.write("r.toml",
          good_recipe() + ("# " + names + brackets + "\n[model.norm]\nuse = \"table\"\nscales = " + list +
                           "]\nfile = \"\"\"\n" + std::string(40, '.') + "\\\"" + brackets.substr(0, 40) + "\"\"\"\n"));
  EXPECT_EQ(r.errors("r.toml"), "no error");
}
TEST(Errors, AFileLargerThanAnyRecipeIsNotParsed) {
  Recipes r;
  r.write("r.toml", good_recipe() + std::string(5 << 20, '#'));
  EXPECT_EQ(r.errors("r.toml"),
            "error: [r.toml] the recipe must be a file that can be read but has more than 4194304 bytes\n");
}
TEST(Errors, TheNameMustDoAsThatOfAFolder) {
  for (const std::string bad : {"", "a/b", "../x", ".", "..", "a\\nb"})
    EXPECT_NE(
        errors_with("\"good\"", "\"" + bad + "\"").find("r.toml:2:8: error: 'name' must do as the name of a folder: "),
        std::string::npos)
        << bad;
  EXPECT_EQ(errors_with("\"good\"", "\"a b.2\""), "no error");
}
TEST(Errors, ALayerThatLacksSomethingIsNamed) {
  EXPECT_EQ(errors_with("attention = { use = \"gated-mla\"", "# { use = \"gated-mla\""), "no error");
  EXPECT_EQ(errors_with("like = \"linear\"\nffn", "ffn"),
            "r.toml:16:1: error: layer 'first' needs 'attention' (a component of kind attention): mixes tokens\n");
}
TEST(Errors, UnknownTablesAndKeysOfTheCore) {
  EXPECT_EQ(errors_with("[train]", "[trian]"),
            "r.toml:21:2: error: a recipe has no key 'trian'; did you mean 'train'?\n");
  EXPECT_EQ(errors_with("seed", "sead"), "r.toml:22:1: error: train has no key 'sead'; did you mean 'seed'?\n");
  EXPECT_EQ(errors_with("lr =", "lrs = 1\nlr ="),
            "r.toml:28:1: error: a curriculum stage has no key 'lrs'; did you mean 'lr'?\n");
  EXPECT_EQ(errors_with("like = \"linear\"\nffn", "like = \"linear\"\nfnn"),
            "r.toml:18:1: error: a layer has no key 'fnn'; did you mean 'ffn'?\n");
}
TEST(Errors, Choices) {
  EXPECT_EQ(errors_with("seed = 7", "compute = \"bf15\""),
            "r.toml:22:11: error: 'compute' must be one of 'f32', 'bf16' but got 'bf15'; did you mean 'bf16'?\n");
}
TEST(Errors, NumbersOutOfRange) {
  EXPECT_EQ(errors_with("seed = 7", "clip = nan"), "r.toml:22:8: error: 'clip' must be at least 0 but got nan\n");
  EXPECT_EQ(errors_with("seed = 7", "clip = inf"), "r.toml:22:8: error: 'clip' must be finite but got inf\n");
  EXPECT_EQ(errors_with("seed = 7", "seed = 7.0"), "r.toml:22:8: error: 'seed' wants int but got float\n");
  EXPECT_EQ(errors_with("seed = 7", "seed = true"), "r.toml:22:8: error: 'seed' wants int but got bool\n");
  EXPECT_EQ(errors_with("seed = 7", "clip = 2020-01-01"),
            "r.toml:22:8: error: 'clip' wants float but got date or time\n");
}
TEST(Errors, PatternAndAt) {
  EXPECT_EQ(errors_with("\"linear\", \"global\"]", "\"linear\", \"globl\"]"),
            "r.toml:7:42: error: there is no layer 'globl'; did you mean 'global'?\n");
  EXPECT_EQ(errors_with("-1 = \"global\"", "8 = \"global\""),
            "r.toml:8:21: error: 'at' must be in [-8, 7], as there are 8 layers, but got 8\n");
  EXPECT_EQ(errors_with("-1 = \"global\"", "-8 = \"global\""),
            "r.toml:8:8: error: 'at' names one layer twice: -8 and 0\n");
  EXPECT_EQ(errors_with("-1 = \"global\"", "last = \"global\""),
            "r.toml:8:21: error: 'at' wants layer numbers, from 0 or negative from the end, but got 'last'\n");
  EXPECT_EQ(errors_with("-1 = \"global\"", "-1 = \"x\""),
            "r.toml:8:26: error: there is no layer 'x'; there are: first, global, linear\n");
  EXPECT_EQ(errors_with("pattern = [\"linear\", \"linear\", \"linear\", \"global\"]\n", ""),
            "r.toml:3:1: error: model needs 'pattern' (array of strings): it has 3 layers\n");
  EXPECT_EQ(errors_with("[\"linear\", \"linear\", \"linear\", \"global\"]", "[]"),
            "r.toml:7:11: error: 'pattern' must name at least one layer but is empty\n");
}
TEST(Errors, LikeToNothingAndInACircle) {
  EXPECT_EQ(errors_with("like = \"linear\"\nffn", "like = \"liner\"\nattention = \"kda\"\nffn"),
            "r.toml:17:8: error: there is no layer 'liner'; did you mean 'linear'?\n"
            "r.toml:18:13: error: attention.kda needs 'heads' (int): of a test\n"
            "r.toml:18:13: error: attention.kda needs 'head_dim' (int): of a test\n");
  const std::string e = errors_with("[model.layer.linear]\n", "[model.layer.linear]\nlike = \"first\"\n");
  EXPECT_EQ(e, "r.toml:11:8: error: layers are like each other in a circle: first -> linear -> first\n") << e;
}
TEST(Errors, Curriculum) {
  EXPECT_EQ(errors_with("batch_tokens = 4096", "batch_tokens = 5000"),
            "r.toml:26:16: error: 'batch_tokens' must be a multiple of 'micro_tokens' (2048) but got 5000\n");
  EXPECT_EQ(errors_with("context = 256", "context = 4096"),
            "r.toml:24:11: error: 'context' must be at most 'micro_tokens' (2048) but got 4096\n");
  EXPECT_EQ(errors_with("lr = 2e-3", "lr = 2e-3\nmax_documents = 3000"),
            "r.toml:29:17: error: 'max_documents' must be at most 'micro_tokens' (2048) but got 3000\n");
  EXPECT_EQ(errors_with("tokens = 1000000", "tokens = 1000"),
            "r.toml:25:10: error: 'tokens' must be at least 'batch_tokens' (4096) but got 1000\n");
  EXPECT_EQ(errors_with("micro_tokens = 2048", "micro_tokens = 2147483648"),
            "r.toml:27:16: error: 'micro_tokens' must be in [1, 2147483647] but got 2147483648\n");
  EXPECT_EQ(errors_with("tokens = 1000000\nbatch_tokens = 4096\nmicro_tokens = 2048\n",
                        "tokens = 4294967296\nbatch_tokens = 4294967296\n"),
            "r.toml:26:16: error: 'batch_tokens' must be at most 2147483647 without 'micro_tokens' but got 4294967296; "
            "set micro_tokens\n");
  Recipes r;
  r.write("r.toml",
          with("name = \"good\"", "curriculum = []").substr(0, with("name = \"good\"", "curriculum = []").find("[[")));
  EXPECT_EQ(r.errors("r.toml"), "r.toml:2:14: error: 'curriculum' must have at least one stage\n");
}
TEST(Errors, ACircleOfDefaultsIsToldAndDoesNotHang) {
  const std::string e = errors_with("\"muon\"", "\"circle\"");
  EXPECT_NE(e.find("slots deep: the defaults of its components go round in a circle"), std::string::npos) << e;
}
TEST(Errors, ListsAreCheckedByElement) {
  Recipes r;
  r.write("r.toml", good_recipe() + std::string("[model.norm]\nuse = \"table\"\nsizes = [1, 2.5]\nscales = [\"x\"]\n"));
  EXPECT_EQ(r.errors("r.toml"),
            "r.toml:32:13: error: 'sizes' wants array of ints but got float in it\n"
            "r.toml:33:11: error: 'scales' wants array of floats but got string in it\n");
}

}  // namespace
}  // namespace kitbash
