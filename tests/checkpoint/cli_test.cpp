// `kitbash checkpoint` as a person calls it; KITBASH is the program.
#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "fixture.h"

namespace kitbash {
namespace {

struct Answer {
  int code;
  std::string text;
};

Answer call(const std::string& arguments, bool errors = true) {
  const std::string line = std::string(KITBASH) + " checkpoint " + arguments + (errors ? " 2>&1" : " 2>/dev/null");
  std::FILE* f = popen(line.c_str(), "r");
  Answer a{-1, ""};
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, f)) a.text.append(buffer, n);
  const int status = pclose(f);
  a.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return a;
}

class CheckpointVerbs : public ::testing::Test {
 protected:
  CheckpointVerbs() {
    declare_all(v), v.fill(1);
    CheckpointFolder f(run.path() + "/checkpoints");
    one = f.save(v.memory, info_at(1000));
    *reinterpret_cast<int32_t*>(v.memory.at("layer0.kinds")) += 2;
    two = f.save(v.memory, info_at(2000));
  }
  TempFolder run;
  Values v;
  std::string one, two;
};

TEST_F(CheckpointVerbs, ListShowsARunByStep) {
  const Answer a = call("list " + run.path());
  EXPECT_EQ(a.code, 0) << a.text;
  EXPECT_TRUE(contains(a.text, "step-00001000") && contains(a.text, "2.1250") && contains(a.text, "tiny")) << a.text;
  const auto j = nlohmann::json::parse(call("list --json " + run.path(), false).text);
  ASSERT_EQ(j["checkpoints"].size(), 2u);
  EXPECT_EQ(j["checkpoints"][1]["step"], 2000);
  EXPECT_EQ(j["checkpoints"][1]["plugins"]["norm-rms"], "1.2.0 aa");
  EXPECT_EQ(call("list " + run.path() + "/absent").code, 2);
}

TEST_F(CheckpointVerbs, VerifyExitsWith3AndNamesTheTensor) {
  EXPECT_EQ(call("verify " + run.path()).code, 0);
  EXPECT_EQ(call("verify " + one).code, 0);
  const std::string file = two + "/optimizer-00001-of-00001.safetensors";
  std::string s = slurp(file);
  s.back() = char(s.back() ^ 4);
  spit(file, s);
  const Answer a = call("verify " + run.path());
  EXPECT_EQ(a.code, 3);
  EXPECT_TRUE(contains(a.text, "ok      " + one) && contains(a.text, "broken  " + two)) << a.text;
  EXPECT_TRUE(contains(a.text, file + ": layer0.q.muon]")) << a.text;
  EXPECT_EQ(call("diff " + one + " " + two).code, 3);
  EXPECT_EQ(call("verify " + run.path() + "/absent").code, 2);
}

TEST_F(CheckpointVerbs, DiffExitsWith1WhenTheyDiffer) {
  const Answer same = call("diff " + one + " " + one);
  EXPECT_EQ(same.code, 0);
  EXPECT_EQ(same.text, "equal\n");
  const Answer a = call("diff " + one + " " + two);
  EXPECT_EQ(a.code, 1);
  EXPECT_TRUE(contains(a.text, "position step: 1000 against 2000")) << a.text;
  EXPECT_TRUE(contains(a.text, "tensor layer0.kinds: 1 of 5 elements differ, by at most 2 (element 0)")) << a.text;
}

}  // namespace
}  // namespace kitbash
