// `kitbash train` and `generate` as a person calls them: signals, a full disk, mistakes.
#include <sys/mount.h>

#include <algorithm>

#include "process.h"

namespace kitbash::test {
namespace {

struct Answer {
  int code;
  std::string text;
};
Answer call(const Place& p, std::vector<std::string> arguments, uint64_t largest_file = 0) {
  // One thread: a second one only waits for its share of a machine that has others to serve.
  if (arguments[0] == "train" && !std::count(arguments.begin(), arguments.end(), "--threads"))
    arguments.insert(arguments.end(), {"--threads", "1"});
  Child c(std::move(arguments), p.path() + "/out", largest_file);
  const int code = c.wait();
  return {code, c.text()};
}

class Signals : public ::testing::TestWithParam<int> {};

TEST_P(Signals, SaveExitWith75AndSayHowToResume) {
  const Place p(recipe_text("", 40, 20));
  Child c({"train", p.recipe_file(), "--run", p.run("r"), "--threads", "1", "--set", "train.clip=0.5"},
          p.path() + "/out");
  while (!contains(slurp(p.run("r") + "/metrics.jsonl"), "\"step\":5,")) pause_for(0.002);
  c.send(GetParam());
  ASSERT_EQ(c.wait(), 75) << c.text();
  const std::string command = std::string("continue with: ") + KITBASH + " train " + p.recipe_file() + " --run " +
                              p.run("r") + " --resume --set train.clip=0.5 --threads 1\n";
  EXPECT_TRUE(contains(c.text(), command)) << c.text();
  const Answer a =
      call(p, {"train", p.recipe_file(), "--run", p.run("r"), "--resume", "--set", "train.clip=0.5", "--threads", "1"});
  EXPECT_EQ(a.code, 0) << a.text;
  EXPECT_TRUE(contains(a.text, "resumed from") && contains(a.text, "held-out bits/byte")) << a.text;
  std::ifstream f(p.run("r") + "/metrics.jsonl");
  int64_t step = 0;
  for (std::string line; std::getline(f, line);) {
    const auto j = nlohmann::json::parse(line);
    if (j["event"] != "step") continue;
    EXPECT_EQ(j["step"], ++step);
  }
  EXPECT_EQ(step, 60);
}
INSTANTIATE_TEST_SUITE_P(Of, Signals, ::testing::Values(SIGTERM, SIGINT));

// As after Ctrl-C in `kitbash train ... | tee log`, which ends tee first.
TEST(Train, IsSavedWhenTheReaderOfItsOutputGoes) {
  const Place p(recipe_text("", 40, 20));
  const std::string command = std::string(KITBASH) + " train " + p.recipe_file() + " --run " + p.run("r") +
                              " --threads 1 2>&1 | head -n 3 > " + p.path() + "/out";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::vector<CheckpointInfo> saved = CheckpointFolder(p.run("r") + "/checkpoints").list();
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_LT(saved[0].position.step, 40);
  EXPECT_EQ(call(p, {"train", p.recipe_file(), "--run", p.run("r"), "--resume"}).code, 0);
}

TEST(Train, JsonEventsSayWhatThePlainLinesSay) {
  const Place p(recipe_text("", 2, 1));
  const Answer a = call(p, {"train", p.recipe_file(), "--run", p.run("r"), "--json", "--stop-after", "1"});
  EXPECT_EQ(a.code, 75) << a.text;
  std::istringstream lines(a.text);
  std::map<std::string, nlohmann::json> last;
  for (std::string line; std::getline(lines, line);) {
    const auto j = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(j.is_object()) << line;
    last[j["event"]] = j;
  }
  EXPECT_EQ(last["step"]["step"], 1);
  EXPECT_TRUE(contains(last["preempted"]["resume"], "--resume --threads 1 --json")) << a.text;
}

// A file system of 2 MB where root can have one, else a limit on the size of a file: both refuse a write half-way.
TEST(Train, OnAFullDiskThePreviousCheckpointStays) {
  const Place p(recipe_text("checkpoint_every = 2", 4, 1));
  const std::string disk = p.path() + "/disk";
  fs::create_directory(disk);
  const Answer whole = call(p, {"train", p.recipe_file(), "--run", p.run("whole")});
  ASSERT_EQ(whole.code, 0) << whole.text;
  int64_t size = 0;
  for (const auto& f : fs::directory_iterator(p.run("whole") + "/checkpoints/step-00000002"))
    size += int64_t(f.file_size());
  // Room for one checkpoint and half of another.
  const std::string options = "size=" + std::to_string(size * 3 / 2 + 100'000);
  const bool mounted = mount("tmpfs", disk.c_str(), "tmpfs", 0, options.c_str()) == 0;
  if (mounted) {
    const Answer a = call(p, {"train", p.recipe_file(), "--run", disk + "/r"});
    EXPECT_EQ(a.code, 3) << a.text;
    EXPECT_TRUE(contains(a.text, "the checkpoint needs ") && contains(a.text, " free (") &&
                contains(a.text, "Earlier checkpoints"))
        << a.text;
    verify_checkpoint(disk + "/r/checkpoints/step-00000002");
    EXPECT_FALSE(fs::exists(disk + "/r/checkpoints/step-00000004"));
    ASSERT_EQ(mount("tmpfs", disk.c_str(), "tmpfs", MS_REMOUNT, "size=64m"), 0);  // room is made
    const Answer b = call(p, {"train", p.recipe_file(), "--run", disk + "/r", "--resume"});
    EXPECT_EQ(b.code, 0) << b.text;
    EXPECT_EQ(
        joined(diff_checkpoints(p.run("whole") + "/checkpoints/step-00000005", disk + "/r/checkpoints/step-00000005")),
        "");
    umount(disk.c_str());
  }
  std::printf("%s\n", mounted ? "tmpfs" : "no tmpfs; a limit on the size of a file alone");
  const Answer first = call(p, {"train", p.recipe_file(), "--run", p.run("limited"), "--stop-after", "2"});
  ASSERT_EQ(first.code, 75) << first.text;
  const Answer a = call(p, {"train", p.recipe_file(), "--run", p.run("limited"), "--resume"}, uint64_t(size / 4));
  EXPECT_EQ(a.code, 3) << a.text;
  EXPECT_TRUE(contains(a.text, "the checkpoint needs ")) << a.text;
  const Answer b = call(p, {"train", p.recipe_file(), "--run", p.run("limited"), "--resume"});
  EXPECT_EQ(b.code, 0) << b.text;
  EXPECT_EQ(joined(diff_checkpoints(p.run("whole") + "/checkpoints/step-00000005",
                                    p.run("limited") + "/checkpoints/step-00000005")),
            "");
}

TEST(Train, MistakesAreToldBeforeAnythingIsWritten) {
  const Place p(recipe_text("", 2, 1));
  const auto refused = [&](std::vector<std::string> more, const std::string& words) {
    std::vector<std::string> arguments{"train", p.recipe_file(), "--run", p.run("r")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Answer a = call(p, arguments);
    EXPECT_EQ(a.code, 2) << a.text;
    EXPECT_TRUE(contains(a.text, words)) << a.text;
    EXPECT_FALSE(fs::exists(p.run("r"))) << words;
  };
  refused({"--resume"}, "--resume needs the folder of a run");
  refused({"--set", "data.sources.plain.path=absent.txt"}, "absent.txt");
  refused({"--set", "train.compute=bf16"}, "train.compute must be f32 on the cpu but got bf16");
  refused({"--arena", "odd"}, "odd");
  refused({"--threads", "-1"}, "threads");
  refused({"--stop-after", "-1"}, "stop-after");
}

TEST(Generate, BadArgumentsAreErrorsInWords) {
  const Place p(recipe_text("", 2, 1));
  ASSERT_EQ(call(p, {"train", p.recipe_file(), "--run", p.run("r")}).code, 0);
  const auto refused = [&](std::vector<std::string> arguments, const std::string& words, int code = 2) {
    arguments.insert(arguments.begin(), "generate");
    const Answer a = call(p, arguments);
    EXPECT_EQ(a.code, code) << a.text;
    EXPECT_TRUE(contains(a.text, words)) << a.text;
  };
  const std::string r = p.run("r");
  refused({p.run("absent")}, "absent");
  refused({r, "--tokens", "0"}, "--tokens must be in [1, 2147483645] but got 0");
  refused({r, "--tokens", "many"}, "many");
  refused({r, "--tokens", "9223372036854775807"}, "--tokens must be in [1, 2147483645] but got 9223372036854775807");
  refused({r, "--top-p", "0"}, "--top-p must be in (0, 1] but got 0");
  refused({r, "--top-p", "1.5"}, "but got 1.5");
  refused({r, "--top-p", "nan"}, "but got nan");
  refused({r, "--temperature", "-1"}, "but got -1");
  refused({r, "--temperature", "nan"}, "but got nan");
  refused({r, "--seed", "-1"}, "seed");
  refused({r, "--seed", "99999999999999999999999"}, "must be within 64 bits but got '99999999999999999999999'");
  refused({p.recipe_file()}, "needs the folder of a run or a checkpoint but got a recipe; train it first with: " +
                                 std::string(KITBASH) + " train " + p.recipe_file() + "\n");
  refused({r + "/metrics.jsonl"}, "but got the file '" + r + "/metrics.jsonl'");
  refused({std::string(300, 'x')}, "cannot be read: File name too long");
  refused({r, "--threads", "-2"}, "threads");
  const Answer one = call(p, {"generate", r, "--prompt", "ab", "--tokens", "20", "--seed", "4", "--json"});
  const Answer two = call(p, {"generate", r, "--prompt", "ab", "--tokens", "20", "--seed", "4", "--json"});
  ASSERT_EQ(one.code, 0) << one.text;
  EXPECT_EQ(nlohmann::json::parse(one.text)["text"], nlohmann::json::parse(two.text)["text"]);
}

TEST(Eval, BadArgumentsAreErrorsInWords) {
  const Place p(recipe_text("", 2, 1));
  ASSERT_EQ(call(p, {"train", p.recipe_file(), "--run", p.run("r")}).code, 0);
  const auto refused = [&](std::vector<std::string> more, const std::string& words) {
    std::vector<std::string> arguments{"eval", p.run("r")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Answer a = call(p, arguments);
    EXPECT_EQ(a.code, 2) << a.text;
    EXPECT_TRUE(contains(a.text, words)) << a.text;
  };
  refused({"--tokens", "-5"}, "[eval] --tokens must be 0 (all) or more but got -5");
  refused({"--stage", "none"}, "[eval] --stage must be one of '");
  // The recipe of the checkpoint is named by what it lies in, not by a file that a user never sees.
  refused({"--set", "train.clip=-1"}, "--set train.clip=-1: error: 'clip' must be at least 0 but got -1");
  refused({"--set", "model.norm.odd=1"}, "--set model.norm.odd=1: error: norm.rmsnorm has no key 'odd'");
}

// What the checkpoint brings along needs no file of its own.
TEST(Eval, NeedsNoFolderForTemporaryFiles) {
  const Place p(recipe_text("", 2, 1));
  ASSERT_EQ(call(p, {"train", p.recipe_file(), "--run", p.run("r")}).code, 0);
  setenv("TMPDIR", "/nonexistent", 1);
  const Answer evaluated = call(p, {"eval", p.run("r"), "--tokens", "1"}),
               generated = call(p, {"generate", p.run("r"), "--tokens", "3"});
  unsetenv("TMPDIR");
  EXPECT_EQ(evaluated.code, 0) << evaluated.text;
  EXPECT_EQ(generated.code, 0) << generated.text;
}

}  // namespace
}  // namespace kitbash::test
