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
  EXPECT_TRUE(has(r.out, "Exit codes: 0 ok, 2 usage or recipe error, 3 run failed"));
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

}  // namespace
}  // namespace kitbash::test
