// [data] and the mix of a stage: what good ones become, and what is said about bad ones.
#include <gtest/gtest.h>

#include "fake_source.h"

namespace kitbash {
namespace {

using Mix = std::map<std::string, double>;

// The good recipe ends before line 30, where `mix` or `data` begins.
std::string with_data(const std::string& data, const std::string& mix = "") {
  return good_recipe() + (mix.empty() ? "" : "mix = " + mix + "\n") + data;
}
const std::string kTwo = R"([data]
tokenizer = "bytes"
[data.sources.books]
use = "text"
path = "books.txt"
[data.sources.web]
use = "jsonl"
path = "web/train.jsonl"
held_out = "web/held_out.jsonl"
)";
std::string errors_of(const std::string& text) {
  Recipes r;
  r.write("r.toml", text);
  return r.errors("r.toml");
}

TEST(Data, IsReadWithDefaultsAndPathsOfTheRecipesFolder) {
  Recipes r;
  r.write("below/r.toml", with_data(kTwo));
  const Recipe x = r.load("below/r.toml");
  const auto here = std::filesystem::current_path() / "below";
  EXPECT_EQ(x.data.tokenizer->info->id(), "tokenizer.bytes");
  EXPECT_TRUE(x.data.join);
  EXPECT_EQ(x.data.interleave, 1);
  ASSERT_EQ(x.data.sources.size(), 2u);
  EXPECT_EQ(std::get<std::string>(value_of(*x.data.sources.at("books"), "path")), here / "books.txt");
  EXPECT_EQ(std::get<std::string>(value_of(*x.data.sources.at("books"), "held_out")), "");
  EXPECT_EQ(std::get<std::string>(value_of(*x.data.sources.at("web"), "held_out")), here / "web/held_out.jsonl");
  EXPECT_EQ(x.curriculum[0].mix, (Mix{{"books", 1}, {"web", 1}}));
}
TEST(Data, MayBeLeftOut) {
  Recipes r;
  r.write("r.toml", good_recipe());
  const Recipe x = r.load("r.toml");
  EXPECT_EQ(x.data.tokenizer, nullptr);
  EXPECT_TRUE(x.data.sources.empty());
  EXPECT_TRUE(x.curriculum[0].mix.empty());
  EXPECT_EQ(x.resolved.find("[data]"), std::string::npos);
}
TEST(Data, TheMixIsTheStagesOwn) {
  Recipes r;
  r.write("r.toml", with_data(kTwo, "{ web = 3, books = 0.5 }"));
  EXPECT_EQ(r.load("r.toml").curriculum[0].mix, (Mix{{"books", 0.5}, {"web", 3}}));
  EXPECT_EQ(r.load("r.toml", {"curriculum.0.mix.web=2"}).curriculum[0].mix, (Mix{{"books", 0.5}, {"web", 2}}));
}
TEST(Data, ResolvedTextShowsItAndLoadsToItself) {
  Recipes r;
  r.write("r.toml", with_data(kTwo, "{ web = 3 }"));
  const Recipe x = r.load("r.toml", {"data.join=false", "data.interleave=16"});
  r.write("elsewhere/resolved.toml", x.resolved);
  EXPECT_EQ(r.load("elsewhere/resolved.toml").resolved, x.resolved);
  for (const char* want :
       {"\n[data]\njoin = false\ninterleave = 16\n", "\n[data.tokenizer]\nuse = \"bytes\"\n",
        "\n[data.sources.books]\nuse = \"text\"\n", "separator = \"\\n\\n\"\n", "mix = { web = 3.0 }\n"})
    EXPECT_NE(x.resolved.find(want), std::string::npos) << want << x.resolved;
}
TEST(Data, MissingPartsAreNamed) {
  EXPECT_EQ(errors_of(with_data("[data]\n")),
            "r.toml:30:1: error: data needs 'tokenizer' (a component of kind tokenizer): text to token ids and back\n"
            "r.toml:30:1: error: data needs 'sources' (table): named sources: [data.sources.NAME]\n");
  EXPECT_EQ(errors_of(with_data("[data]\ntokenizer = \"bytes\"\nsources = {}\n")),
            "r.toml:32:11: error: data needs at least one [data.sources.NAME]\n");
  EXPECT_EQ(errors_of(with_data("[data]\ntokenizer = \"bytes\"\n[data.sources.a]\npath = \"x\"\n")),
            "r.toml:32:1: error: 'a' needs 'use' (string): a component of kind source\n");
  EXPECT_EQ(errors_of(with_data("[data]\ntokenizer = \"bytes\"\n[data.sources.a]\nuse = \"text\"\n")),
            "r.toml:33:7: error: source.text needs 'path' (string): of a test\n");
}
TEST(Data, WrongNamesGetTheNearest) {
  EXPECT_EQ(errors_of(with_data("[data]\ntokenizer = \"byts\"\n[data.sources.a]\nuse = \"jsnl\"\n")),
            "r.toml:31:13: error: there is no tokenizer 'byts'; did you mean 'bytes'?\n"
            "r.toml:33:7: error: there is no source 'jsnl'; did you mean 'jsonl'?\n");
  EXPECT_EQ(errors_of(with_data("[data]\njion = true\n" + kTwo.substr(7))),
            "r.toml:31:1: error: data has no key 'jion'; did you mean 'join'?\n");
}
TEST(Data, InterleaveIsBounded) {
  for (const char* n : {"0", "1025"})
    EXPECT_NE(errors_of(with_data("[data]\ninterleave = " + std::string(n) + kTwo.substr(6)))
                  .find("r.toml:31:14: error: 'interleave'"),
              std::string::npos);
}
TEST(Data, AMixMustNameSourcesWithSharesAboveZero) {
  EXPECT_EQ(errors_of(with_data(kTwo, "{ bokks = 1 }")),
            "r.toml:30:9: error: there is no source 'bokks'; did you mean 'books'?\n");
  EXPECT_EQ(errors_of(with_data(kTwo, "{ zzzzzzzz = 1 }")),
            "r.toml:30:9: error: there is no source 'zzzzzzzz'; there are: books, web\n");
  EXPECT_EQ(errors_of(with_data(kTwo, "{ web = 0 }")),
            "r.toml:30:15: error: the share of 'web' must be above 0 but got 0; leave the source out\n");
  EXPECT_EQ(errors_of(with_data(kTwo, "{ web = -1.5, books = inf }")),
            "r.toml:30:15: error: the share of 'web' must be above 0 but got -1.5; leave the source out\n"
            "r.toml:30:29: error: the share of 'books' must be above 0 and finite but got inf\n");
  EXPECT_EQ(errors_of(with_data(kTwo, "{ web = \"all\" }")), "r.toml:30:15: error: 'web' wants float but got string\n");
  EXPECT_EQ(errors_of(with_data(kTwo, "{}")), "r.toml:30:7: error: 'mix' must name at least one source but is empty\n");
  EXPECT_EQ(errors_of(with_data(kTwo, "3")), "r.toml:30:7: error: 'mix' wants table but got int\n");
  EXPECT_EQ(errors_of(with_data("", "{ web = 1 }")),
            "r.toml:30:7: error: 'mix' names sources but the recipe has no [data.sources.NAME]\n");
}

}  // namespace
}  // namespace kitbash
