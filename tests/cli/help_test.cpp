// Every verb explains itself with an example, and refuses what it does not know in one sentence.
#include "tests/cli/run.h"

namespace kitbash::test {
namespace {

// Names in the list of subcommands of a --help.
std::vector<std::string> verbs(const std::vector<std::string>& group) {
  std::vector<std::string> words = group, names;
  words.push_back("--help");
  const std::string help = kitbash(words).out;
  const size_t at = help.find("Subcommands:\n");
  if (at == help.npos) return names;
  std::istringstream lines(help.substr(at + 13));
  for (std::string line; std::getline(lines, line) && line.rfind("  ", 0) == 0;)
    names.push_back(line.substr(2, line.find(' ', 2) - 2));
  return names;
}

void check_help(const std::vector<std::string>& group, int& seen) {
  for (const std::string& name : verbs(group)) {
    std::vector<std::string> words = group;
    words.insert(words.end(), {name, "--help"});
    const Ran r = kitbash(words);
    EXPECT_EQ(r.code, 0) << name;
    EXPECT_EQ(r.err, "") << name;
    const size_t example = r.out.find("Example:\n  kitbash ");
    EXPECT_NE(example, std::string::npos) << name;
    if (example != std::string::npos) {
      EXPECT_TRUE(has(r.out.substr(example), name)) << "the example of " << name << " does not use it";
    }
    ++seen;
    words.pop_back();
    check_help(words, seen);
  }
}

TEST(Help, of_every_verb_has_an_example) {
  int seen = 0;
  check_help({}, seen);
  EXPECT_GE(seen, 8);
}

TEST(Help, of_the_program_tells_the_exit_codes) {
  const Ran r = kitbash({"--help"});
  EXPECT_EQ(r.code, 0);
  EXPECT_TRUE(has(r.out,
                  "Exit codes: 0 ok, 1 `checkpoint diff` found a difference, 2 usage or recipe error, 3 run failed, "
                  "75 stopped: run again with --resume"));
}

TEST(Usage, names_the_nearest_verb) {
  const Ran r = kitbash({"chekc", "x.toml"});
  EXPECT_EQ(r.code, 2);
  EXPECT_TRUE(has(r.err, "but got 'chekc'; did you mean 'check'?")) << r.err;
}

TEST(Usage, refuses_unknown_options_and_missing_words) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"check"}, {"check", "--fast", "x.toml"}, {"plugin"}, {}}) {
    const Ran r = kitbash(words);
    EXPECT_EQ(r.code, 2);
    EXPECT_EQ(r.out, "");
    EXPECT_TRUE(has(r.err, "error: ")) << r.err;
  }
}

TEST(Usage, refuses_json_before_a_verb_that_prints_no_figures) {
  const Ran r = kitbash({"--json", "check", recipe("reference/tiny.toml")});
  EXPECT_EQ(r.code, 2);
  EXPECT_EQ(r.out, "");
  EXPECT_EQ(r.err, "error: [kitbash check] has no --json: it prints no figures; leave it out\n");
  EXPECT_EQ(kitbash({"--json", "components", "norm"}).code, 0);
  EXPECT_EQ(kitbash({"--json", "plugin", "path"}).code, 0);
}

TEST(Usage, names_a_path_that_cannot_be_used) {
  const Folder f;
  fs::create_symlink("loop", f / "loop");
  const std::string name(300, 'x');
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"check", f / "loop"},
        {"check", f / name},
        {"check", f.path()},
        {"check", ""},
        {"explain", name},
        {"plan", f / (name + ".toml")},
        {"generate", f / name},
        {"eval", f / name},
        {"checkpoint", "list", f / name},
        {"checkpoint", "verify", f / name},
        {"plugin", "inspect", ""},
        {"plugin", "inspect", f / name},
        {"data", "prepare", f / name},
        {"check", recipe("reference/tiny.toml"), "--plugin-path", f / name, "--set", "model.norm=none"}}) {
    const Ran r = kitbash(words);
    EXPECT_EQ(r.code, 2) << words[0] << " " << r.err;
    EXPECT_TRUE(has(r.err, "error: ")) << r.err;
    EXPECT_FALSE(has(r.err, "unexpected")) << r.err;
  }
  EXPECT_EQ(kitbash({"check", f.path()}).err,
            "error: [" + f.path() + "] the recipe must be a file that can be read but is a folder\n");
}

TEST(Usage, lists_the_stages_that_there_are) {
  const Ran r = kitbash({"bench", recipe("reference/tiny.toml"), "--stage", "none"});
  EXPECT_EQ(r.code, 2);
  EXPECT_EQ(r.err, "error: [bench] --stage must be one of 'short', 'long' but got 'none'\n");
}

TEST(Usage, looks_at_the_file_of_a_dataset_though_it_is_prepared_already) {
  const Ran r =
      kitbash({"data", "prepare", std::string(KITBASH_RECIPES) + "/../datasets/foldoc", "--from", "/none.deb"});
  EXPECT_EQ(r.code, 2);
  EXPECT_EQ(r.err, "error: [data prepare] --from must be a file but there is none at '/none.deb'\n");
}

}  // namespace
}  // namespace kitbash::test
