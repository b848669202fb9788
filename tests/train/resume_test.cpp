// A run that was stopped anywhere and resumed is the run that was not, bit for bit.
#include "fixture.h"

namespace kitbash::test {
namespace {

constexpr int64_t kSteps = 21;

struct Whole {
  Place place;
  Recipe recipe = place.recipe();
  Outcome outcome = train(recipe, place.run("whole"));
};
Whole& whole() {
  static Whole w;
  return w;
}

TEST(Resume, TheRunHasAllThatTheStopsAreToCut) {
  const Whole& w = whole();
  ASSERT_EQ(w.outcome.end, TrainEnd::done);
  EXPECT_EQ(read_manifest(w.outcome.checkpoint).position.step, kSteps);
  EXPECT_TRUE(contains(w.outcome.out, "source 'plain' begins epoch 2")) << w.outcome.out;
  EXPECT_TRUE(contains(w.outcome.out, "source 'lines' begins epoch 2")) << w.outcome.out;
  ASSERT_EQ(w.outcome.results.size(), 2u);
  EXPECT_EQ(w.outcome.results[0].steps, 10);
  EXPECT_GT(w.outcome.results[1].held_out.bits_per_byte, 0);
  EXPECT_EQ(metrics(w.place.run("whole")).size(), size_t(kSteps + 2));
}

TEST(Resume, AStopAtEachOfTwentyStepsChangesNothing) {
  const Whole& w = whole();
  const auto lines = metrics(w.place.run("whole"));
  int same = 0;
  for (int64_t stop = 1; stop < kSteps; ++stop) {
    const std::string run = w.place.run("stop" + std::to_string(stop));
    const Outcome first = train(w.recipe, run, false, stop);
    ASSERT_EQ(first.end, TrainEnd::preempted) << first.out;
    EXPECT_TRUE(contains(first.out, "continue with: kitbash train --resume")) << first.out;
    EXPECT_EQ(read_manifest(first.checkpoint).position.step, stop);
    const Outcome second = train(w.recipe, run, true);
    ASSERT_EQ(second.end, TrainEnd::done) << second.out;
    const auto differ = diff_checkpoints(w.outcome.checkpoint, second.checkpoint);
    EXPECT_TRUE(differ.empty()) << "stopped at " << stop << "\n" << joined(differ);
    EXPECT_EQ(metrics(run), lines) << "stopped at " << stop;
    same += differ.empty() && metrics(run) == lines;
    ASSERT_EQ(second.results.size(), 2u) << "stages before the resume are in the table too";
    for (int i : {0, 1}) {
      EXPECT_EQ(second.results[size_t(i)].loss, w.outcome.results[size_t(i)].loss) << stop;
      EXPECT_EQ(second.results[size_t(i)].tokens, w.outcome.results[size_t(i)].tokens) << stop;
    }
    fs::remove_all(run);
  }
  std::printf("identical: %d of %d\n", same, int(kSteps - 1));
}

TEST(Resume, AStopAfterEverySingleStepChangesNothing) {
  const Whole& w = whole();
  const std::string run = w.place.run("chain");
  Outcome last = train(w.recipe, run, false, 1);
  for (int64_t stop = 2; stop <= kSteps + 1; ++stop) last = train(w.recipe, run, true, stop);
  ASSERT_EQ(last.end, TrainEnd::done);
  EXPECT_EQ(joined(diff_checkpoints(w.outcome.checkpoint, last.checkpoint)), "");
  EXPECT_EQ(metrics(run), metrics(w.place.run("whole")));
}

TEST(Resume, AFinishedRunHasNothingLeftToDo) {
  const Whole& w = whole();
  const auto lines = metrics(w.place.run("whole"));
  const Outcome again = train(w.recipe, w.place.run("whole"), true);
  EXPECT_EQ(again.end, TrainEnd::done);
  EXPECT_EQ(metrics(w.place.run("whole")), lines);
  EXPECT_EQ(again.results.size(), 2u);
}

TEST(Resume, LinesAfterTheCheckpointAreWrittenAnew) {
  const Whole& w = whole();
  const std::string run = w.place.run("torn");
  train(w.recipe, run, false, 4);
  std::ofstream(run + "/metrics.jsonl", std::ios::app) << R"({"event":"step","step":5,"loss":1})"
                                                       << "\n"
                                                       << R"({"event":"st)";
  train(w.recipe, run, true);
  EXPECT_EQ(metrics(run), metrics(w.place.run("whole")));
}

TEST(Resume, ABrokenCheckpointIsPassedOverWithANotice) {
  const Whole& w = whole();
  const std::string run = w.place.run("broken");
  train(w.recipe, run, false, 3);
  const Outcome second = train(w.recipe, run, true, 5);
  std::string file = second.checkpoint + "/model-00001-of-00001.safetensors", bytes = slurp(file);
  bytes[bytes.size() / 2] ^= 1;
  spit(file, bytes);
  const Outcome third = train(w.recipe, run, true);
  EXPECT_TRUE(contains(third.out, "step-00000005 is broken")) << third.out;
  EXPECT_TRUE(contains(third.out, "(step 3)")) << third.out;
  EXPECT_EQ(joined(diff_checkpoints(w.outcome.checkpoint, third.checkpoint)), "");
  EXPECT_EQ(metrics(run), metrics(w.place.run("whole")));
}

TEST(Resume, AnotherRecipeIsRefusedWithTheLinesThatDiffer) {
  const Whole& w = whole();
  const std::string run = w.place.run("other");
  train(w.recipe, run, false, 2);
  const std::string recipe = slurp(run + "/recipe.toml");
  const Recipe other = w.place.recipe({"train.clip=0.5"});
  const std::string text = error_of([&] { train(other, run, true); });
  EXPECT_TRUE(contains(text, "- clip = 1") && contains(text, "+ clip = 0.5")) << text;
  EXPECT_FALSE(contains(text, "seed")) << text;
  EXPECT_EQ(slurp(run + "/recipe.toml"), recipe) << "an error leaves the folder alone";
}

TEST(Resume, KeysThatChangeNoNumberOfTheTrainingMayDiffer) {
  const Whole& w = whole();
  const std::string run = w.place.run("logging");
  train(w.recipe, run, false, 2);
  const Outcome o = train(w.place.recipe({"train.log_every=7", "train.keep=2", "train.checkpoint_every=5"}), run, true);
  EXPECT_EQ(o.end, TrainEnd::done);
  EXPECT_TRUE(contains(slurp(run + "/recipe.toml"), "log_every = 7"));
  EXPECT_EQ(metrics(run), metrics(w.place.run("whole")));
}

TEST(Resume, WhenAllCheckpointsAreBrokenNothingBeginsAnew) {
  const Whole& w = whole();
  const std::string run = w.place.run("ruins");
  const Outcome first = train(w.recipe, run, false, 3);
  const auto lines = metrics(run);
  for (const auto& e : fs::directory_iterator(run + "/checkpoints"))
    if (e.is_directory() && !e.is_symlink()) spit(e.path().string() + "/manifest.pb", "no manifest");
  const std::string text = error_of([&] { train(w.recipe, run, true); });
  EXPECT_TRUE(contains(text, "must have a checkpoint that is whole but has none") && contains(text, "step-00000003"))
      << text;
  EXPECT_EQ(metrics(run), lines);
  EXPECT_TRUE(fs::exists(first.checkpoint));
}

TEST(Resume, AFolderOfSomethingElseIsRefused) {
  const Whole& w = whole();
  const std::string folder = w.place.run("letters");
  fs::create_directory(folder);
  spit(folder + "/letter.txt", "dear");
  EXPECT_TRUE(contains(error_of([&] { train(w.recipe, folder, true); }), folder + " is none"));
  EXPECT_FALSE(fs::exists(folder + "/lock"));
}

TEST(Resume, WithoutACheckpointTheRunBeginsAnew) {
  const Whole& w = whole();
  const std::string run = w.place.run("bare");
  EXPECT_TRUE(contains(error_of([&] { train(w.recipe, run, true); }), "there is no " + run));
  fs::create_directory(run);
  const Outcome o = train(w.recipe, run, true);
  EXPECT_TRUE(contains(o.out, "no checkpoint yet")) << o.out;
  EXPECT_EQ(joined(diff_checkpoints(w.outcome.checkpoint, o.checkpoint)), "");
}

}  // namespace
}  // namespace kitbash::test
