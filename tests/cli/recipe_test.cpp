// Recipes at the command line: every mistake at once, swaps with their note, the figures of the largest model.
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/run.h"

namespace kitbash::test {
namespace {

namespace fs = std::filesystem;

TEST(Check, shows_all_five_mistakes_of_a_recipe_in_their_order) {
  const Ran r = kitbash_in(KITBASH_CLI_TESTS, {"check", "five.toml"});
  EXPECT_EQ(r.code, 2);
  EXPECT_EQ(r.out, "");
  const std::string errors = r.err.substr(0, r.err.find("  note: "));
  EXPECT_EQ(errors, content(KITBASH_CLI_TESTS "/five.golden"));
  EXPECT_TRUE(has(r.err, "accepts: heads, head_dim, ")) << r.err;
}

TEST(Check, accepts_every_reference_recipe) {
  int recipes = 0;
  for (const auto& e : fs::directory_iterator(recipe("reference"))) {
    const Ran r = kitbash({"check", e.path().string()});
    EXPECT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(r.err, "") << e.path();
    ++recipes;
  }
  EXPECT_GE(recipes, 6);
}

TEST(Check, swaps_the_residual_with_one_note) {
  const Ran r = kitbash({"check", recipe("reference/tiny.toml"), "--set", "model.residual.use=standard"});
  EXPECT_EQ(r.code, 0);
  EXPECT_EQ(r.err, "note: model.residual: 'block_layers' is dropped: residual.standard has no such key\n");
}

TEST(Check, names_what_does_not_exist_and_what_is_near) {
  const auto error_of_set = [](const std::string& set) {
    const Ran r = kitbash({"check", recipe("reference/tiny.toml"), "--set", set});
    EXPECT_EQ(r.code, 2);
    return r.err;
  };
  EXPECT_EQ(error_of_set("model.residual.use=standrad"),
            "--set model.residual.use=standrad: error: there is no residual 'standrad'; did you mean 'standard'?\n");
  EXPECT_EQ(error_of_set("model.layer.linaer.ffn.use=dense"),
            "--set model.layer.linaer.ffn.use=dense: error: there is no layer 'linaer'; did you mean 'linear'?\n");
}

TEST(Check, says_that_a_file_does_not_exist) {
  const Ran r = kitbash({"check", "nowhere.toml"});
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(has(r.err, "nowhere.toml")) << r.err;
}

// What train would refuse after a while, check refuses now.
TEST(Check, refuses_what_train_refuses) {
  const Folder f;
  f.file("text.txt", "a\n\nb\n");
  const std::string data = f.file("data.toml", "kitbash = 1\nextends = \"" + recipe("reference/tiny.toml") +
                                                   "\"\n[data]\ntokenizer = \"bytes\"\n"
                                                   "sources = { a = { use = \"text\", path = \"text.txt\" } }\n");
  EXPECT_EQ(kitbash({"check", data}).code, 0);
  const auto refused = [&](const std::vector<std::string>& set, const std::string& sentence) {
    std::vector<std::string> words{"check", data};
    for (const auto& s : set) words.insert(words.end(), {"--set", s});
    const Ran r = kitbash(words);
    EXPECT_EQ(r.code, 2) << set[0];
    EXPECT_TRUE(has(r.err, sentence)) << r.err;
  };
  refused({"curriculum.1.schedule={ use = 'wsd', warmup = 0.9, decay = 0.5 }"}, "error: [schedule.wsd (");
  refused({"model.vocab=100"}, "'vocab' must be at least 258 for tokenizer.bytes but got 100");
  refused({"data.sources.a.path="}, "source.text needs 'path' (string) but it is empty: ");
  refused({"curriculum.1.context=1"}, "[curriculum 'long' (");
  refused({"curriculum.1.context=1"}, "'context' must be at least 2, a start mark and a token of text, but got 1");
  refused({"curriculum.1.micro_tokens=2147483647", "curriculum.1.batch_tokens=2147483647",
           "curriculum.1.tokens=2147483647"},
          "op expert_sort(i32 [2147483647, 2]): rows are numbered by i32");
}

TEST(Check, says_how_to_make_a_text_that_is_not_there) {
  const Folder f;
  fs::create_directories(f / "datasets/words");
  f.file("datasets/words/manifest.toml", "");
  const std::string data =
      f.file("data.toml", "kitbash = 1\nextends = \"" + recipe("reference/tiny.toml") +
                              "\"\n[data]\ntokenizer = \"bytes\"\nsources = { a = { use = \"text\", path = "
                              "\"datasets/words/prepared/train.txt\" }, b = { use = \"text\", path = \"b.txt\" } }\n");
  const Ran r = kitbash_in(f.path(), {"check", "data.toml"});
  EXPECT_EQ(r.code, 0);
  EXPECT_EQ(r.err, "note: data.sources.a: 'path' is " + (f / "datasets/words/prepared/train.txt") +
                       ", which does not exist; make it with: kitbash data prepare datasets/words\n"
                       "note: data.sources.b: 'path' is " +
                       (f / "b.txt") + ", which does not exist\n");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"train", "data.toml"}, {"data", "stats", "data.toml"}}) {
    const Ran t = kitbash_in(f.path(), words);
    EXPECT_EQ(t.code, 2) << words[0];
    EXPECT_TRUE(has(t.err, "No such file or directory; make it with: kitbash data prepare datasets/words\n")) << t.err;
  }
}

TEST(Check, takes_bytes_that_are_no_utf8_for_a_mistake) {
  for (const char* verb : {"check", "plan", "explain"}) {
    const Ran r = kitbash({verb, recipe("reference/tiny.toml"), "--set", "curriculum.0.name=a\xff"});
    EXPECT_EQ(r.code, 2) << verb;
    EXPECT_EQ(r.err,
              "--set: error: a key and its value must be UTF-8 but byte 20 after 'curriculum.0.name=a' is not\n");
  }
  const Folder f;
  const std::string odd = f / "odd\xff";
  fs::create_directory(odd);
  const Ran r = kitbash({"plugin", "path", "--json", "--plugin-path", odd});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_TRUE(nlohmann::json::accept(r.out)) << r.out;
}

TEST(Plan, of_the_largest_recipe_has_the_published_figures) {
  const Ran r = kitbash({"plan", "--json", recipe("reference/k3-2.8t.toml")});
  ASSERT_EQ(r.code, 0) << r.err;
  const auto j = nlohmann::json::parse(r.out);
  const double total = j["parameters"]["total"], active = j["parameters"]["active"];
  EXPECT_NEAR(total, 2.7795e12, 1e-3 * 2.7795e12);
  EXPECT_NEAR(active, 104.19e9, 1e-3 * 104.19e9);
  EXPECT_EQ(j["cache_bytes_per_token"], 27648);  // 24 layers x (512 + 64) x 2 bytes
  EXPECT_GT(j["state_bytes_per_sequence"], 0);
  EXPECT_GT(j["store_bytes"]["total"], 0);
  EXPECT_GT(j["arena_bytes"], 0);
  EXPECT_FALSE(j["flops_per_token"].empty());
}

// "| `tiny` | 0.38 M | 0.24 M | ...": the figures have two or three digits.
TEST(Plan, counts_the_parameters_that_the_page_of_recipes_gives) {
  std::istringstream page(content(recipe("README.md")));
  int rows = 0;
  for (std::string line; std::getline(page, line);) {
    std::istringstream cells(line);
    std::string bar, name, total_unit, active_unit;
    double total = 0, active = 0;
    if (!(cells >> bar >> name >> bar >> total >> total_unit >> bar >> active >> active_unit) || bar != "|") continue;
    const auto scaled = [](double x, const std::string& unit) {
      return x * (unit == "M" ? 1e6 : unit == "B" ? 1e9 : unit == "T" ? 1e12 : 0);
    };
    const Ran r = kitbash({"plan", "--json", recipe("reference/" + name.substr(1, name.size() - 2) + ".toml")});
    ASSERT_EQ(r.code, 0) << r.err;
    const auto j = nlohmann::json::parse(r.out)["parameters"];
    EXPECT_NEAR(double(j["total"]), scaled(total, total_unit), 0.01 * double(j["total"])) << name;
    EXPECT_NEAR(double(j["active"]), scaled(active, active_unit), 0.01 * double(j["active"])) << name;
    ++rows;
  }
  EXPECT_EQ(rows, 6);
}

TEST(Plan, adds_up_over_layer_kinds) {
  const Ran r = kitbash({"plan", "--json", recipe("reference/tiny.toml")});
  ASSERT_EQ(r.code, 0) << r.err;
  const auto j = nlohmann::json::parse(r.out);
  double total = 0, active = 0, cache = 0, state = 0;
  for (const auto& l : j["layer_kinds"]) {
    total += double(l["parameters"]), active += double(l["active"]);
    cache += double(l["cache_bytes_per_token"]), state += double(l["state_bytes_per_sequence"]);
  }
  EXPECT_DOUBLE_EQ(total, j["parameters"]["total"]);
  EXPECT_DOUBLE_EQ(active, j["parameters"]["active"]);
  EXPECT_DOUBLE_EQ(cache, j["cache_bytes_per_token"]);
  EXPECT_DOUBLE_EQ(state, j["state_bytes_per_sequence"]);
}

TEST(Explain, fills_in_every_default_so_that_the_result_is_a_recipe) {
  const Ran r = kitbash({"explain", recipe("reference/tiny.toml"), "--set", "model.dim=128"});
  ASSERT_EQ(r.code, 0) << r.err;
  const Folder f;
  const std::string again = f.file("again.toml", r.out);
  const Ran checked = kitbash({"check", again});
  EXPECT_EQ(checked.code, 0) << checked.err;
  EXPECT_EQ(kitbash({"explain", again}).out, r.out);
}

}  // namespace
}  // namespace kitbash::test
