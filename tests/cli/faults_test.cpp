// Broken plugins as a user meets them: a sentence that begins with the file, and exit code 2. (tests/faults has every fault;
// here are those that a recipe can run into.)
#include "tests/cli/run.h"

namespace kitbash::test {
namespace {

struct Broken : ::testing::Test {
  Folder folder;
  std::string path;
  // Checks a recipe whose activation is `filler`, with the plugin on the search path.
  Ran check(const std::string& plugin, const std::string& filler) {
    path = folder.plugin("test_" + plugin);
    return kitbash({"check", recipe("reference/tiny.toml"), "--plugin-path", folder.path(), "--set",
                    "model.layer.linear.ffn.activation=" + filler});
  }
};

TEST_F(Broken, abi_number_is_told) {
  const Ran r = check("other_abi", "half");
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(has(r.err, "error: " + path +
                             " speaks plugin ABI 2; this kitbash speaks 1. Rebuild it with this SDK, or use "
                             "kitbash 2.x\n"))
      << r.err;
}

TEST_F(Broken, symbol_is_told) {
  const Ran r = check("undefined_symbol", "half");
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(has(r.err, "error: " + path + " cannot load: undefined symbol 'nowhere_defined'. ")) << r.err;
}

TEST_F(Broken, library_without_manifest_is_told) {
  const std::string sentence =
      " is not a kitbash plugin (no 'kitbash' section). Was it built with kitbash_add_plugin()?\n";
  const Ran r = check("no_manifest", "half");
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(has(r.err, "warning: " + path + sentence)) << r.err;
  EXPECT_TRUE(has(r.err, "error: there is no activation 'half'")) << r.err;
  const Ran inspected = kitbash({"plugin", "inspect", path});
  EXPECT_EQ(inspected.code, 2);
  EXPECT_EQ(inspected.err, "error: " + path + sentence);
}

TEST_F(Broken, manifest_that_disagrees_with_the_table_is_told) {
  const Ran r = check("raw_name", "raw");
  EXPECT_EQ(r.code, 2);
  EXPECT_EQ(r.err,
            "error: " + path +
                " disagrees with itself: component 1 is activation.raw in the manifest, activation.cooked in the "
                "table. Rebuild it\n");
}

TEST_F(Broken, create_is_told_with_the_place_in_the_recipe) {
  for (const auto& [how, sentence] :
       std::vector<std::pair<std::string, std::string>>{{"1", "'how' must not be 1 but got 1"},
                                                        {"2", "index 7 of 3 (thrown in create)"},
                                                        {"3", "unknown exception in create"}}) {
    const Folder fresh;
    fresh.plugin("test_throws");
    const Ran r = kitbash({"check", recipe("reference/tiny.toml"), "--plugin-path", fresh.path(), "--set",
                           "model.layer.linear.ffn.activation={ use = 'thrower', how = " + how + " }"});
    EXPECT_EQ(r.code, 2);
    EXPECT_TRUE(has(r.err, "error: [activation.thrower (")) << r.err;
    EXPECT_TRUE(has(r.err, sentence)) << r.err;
  }
}

TEST_F(Broken, plugins_nobody_asks_for_do_no_harm) {
  folder.plugin("test_throws"), folder.plugin("test_undefined_symbol");
  const Ran r = kitbash({"check", recipe("reference/tiny.toml"), "--plugin-path", folder.path()});
  EXPECT_EQ(r.code, 0) << r.err;
}

}  // namespace
}  // namespace kitbash::test
