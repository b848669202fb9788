// run.h: the program as a user runs it: a process, its exit code and what it printed.
#pragma once
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/plugin/fixture.h"

namespace kitbash::test {

struct Ran {
  int code = -1;
  std::string out, err;
};

inline std::string quoted(const std::string& s) {
  std::string q = "'";
  for (char c : s) q += c == '\'' ? "'\\''" : std::string(1, c);
  return q + "'";
}

// Runs kitbash in the folder (of the recipe, so that messages name it as short as the user did).
inline Ran kitbash_in(const std::string& folder, const std::vector<std::string>& words) {
  const Folder logs;
  std::string line = "cd " + quoted(folder) + " && env -u KITBASH_PLUGIN_PATH " + quoted(KITBASH_PROGRAM);
  for (const std::string& w : words) line += " " + quoted(w);
  line += " >" + quoted(logs / "out") + " 2>" + quoted(logs / "err") + " </dev/null";
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), content(logs / "out"),
          content(logs / "err")};
}
inline Ran kitbash(const std::vector<std::string>& words) { return kitbash_in("/", words); }

inline std::string recipe(const std::string& name) { return std::string(KITBASH_RECIPES) + "/" + name; }
inline bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace kitbash::test
