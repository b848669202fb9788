// What the trainer does with what is wrong: sources, folders, steps.
#include <cmath>
#include <cstring>

#include "checkpoint/run_lock.h"
#include "fixture.h"

namespace kitbash::test {
namespace {

TEST(Trainer, SourcesAreOpenedBeforeAnythingIsWritten) {
  for (const char* file : {"plain.txt", "lines.jsonl", "held.txt"}) {
    const Place p;
    const Recipe recipe = p.recipe();
    fs::remove(p.path() + "/" + file);
    const std::string text = error_of([&] { train(recipe, p.run("r")); });
    EXPECT_TRUE(contains(text, file) && contains(text, "No such file")) << text;
    EXPECT_FALSE(fs::exists(p.run("r")));
  }
}

TEST(Trainer, WithoutHeldOutTextThereIsANoticeAndNoEvaluation) {
  const Place p(recipe_text("", 2, 1));
  const Outcome o = train(p.recipe({"data.sources.plain.held_out="}), p.run("r"));
  EXPECT_EQ(o.end, TrainEnd::done);
  EXPECT_TRUE(contains(o.out, "notice: no source has held-out text")) << o.out;
  ASSERT_EQ(o.results.size(), 2u);
  EXPECT_EQ(o.results[0].held_out.bytes, 0);
  EXPECT_TRUE(contains(results_table(o.results), " -")) << results_table(o.results);
}

TEST(Trainer, AFolderBelongsToOneProcessAndToOneRun) {
  const Place p(recipe_text("", 2, 1));
  {
    const RunLock other(p.run("r"));
    EXPECT_TRUE(contains(error_of([&] { train(p.recipe(), p.run("r")); }), "process " + std::to_string(getpid())));
  }
  train(p.recipe(), p.run("r"), false, 1);
  EXPECT_TRUE(contains(error_of([&] { train(p.recipe(), p.run("r")); }), "continue it with --resume"));
}

TEST(Trainer, CheckpointsNameThePluginsWithTheirDigests) {
  const Place p(recipe_text("", 2, 1));
  const CheckpointInfo info = read_manifest(train(p.recipe(), p.run("r"), false, 1).checkpoint);
  EXPECT_EQ(info.plugins, plugin_identities(registry()));
  ASSERT_TRUE(info.plugins.count("attention-kda"));
  EXPECT_EQ(info.plugins.at("attention-kda").size(), std::string("0.1.0 ").size() + 64);
}

// Puts a NaN into a matrix of layer 1 of a checkpoint; returns its name.
std::string poison(const Recipe& recipe, const std::string& run, const std::string& checkpoint) {
  Session s(recipe, registry(), 1, ArenaMode::planned);
  s.enter_stage(recipe.curriculum[0]);
  const CheckpointInfo info = load_checkpoint(checkpoint, s.memory());
  for (const StoreEntry& e : s.model().store.entries()) {
    if (e.life != Life::param || !e.name.starts_with("layers.1.ffn.") || e.type.rank != 2) continue;
    fill_elements(s.memory().at(e.name), e.type.dtype, 1, NAN);
    CheckpointFolder(run + "/checkpoints", 9).save(s.memory(), info);
    return e.name;
  }
  kb::fail("layer 1 has no matrix");
}

TEST(Trainer, APoisonedParameterMakesStepsRefusedAndItsNodeNamed) {
  const Place p;
  const Recipe recipe = p.recipe();
  const std::string name = poison(recipe, p.run("r"), train(recipe, p.run("r"), false, 3).checkpoint);
  const Outcome o = train(recipe, p.run("r"), true);
  EXPECT_EQ(o.end, TrainEnd::failed);
  EXPECT_TRUE(contains(o.out, "step 4 of stage short is skipped")) << o.out;
  EXPECT_TRUE(contains(o.out, "is not finite; first bad value: ")) << o.out;
  const size_t at = o.out.find("first bad value: ");
  const std::string node = o.out.substr(at, o.out.find('\n', at) - at);
  std::printf("%s poisoned; %s\n", name.c_str(), node.c_str());
  EXPECT_TRUE(contains(node, "layers.1.ffn") && contains(node, "nan")) << node;
  EXPECT_TRUE(contains(o.out, "5 steps in a row were refused; the last good checkpoint is")) << o.out;
  // Refused steps have left no mark: what is saved is still the poisoned step 3, and no window has a NaN.
  const CheckpointInfo after = read_manifest(o.checkpoint);
  EXPECT_EQ(after.position.step, 3);
  for (double x : after.position.recent_loss) EXPECT_TRUE(std::isfinite(x));
}

// Weights that no step is accepted with are left behind: the checkpoint before them, and text after them.
TEST(Trainer, FiveRefusedStepsGoBackToTheCheckpointBeforeTheBadWeights) {
  const Place p(recipe_text("checkpoint_every = 1\nkeep = 9"));
  const Recipe recipe = p.recipe();
  for (const char* run : {"whole", "stopped"})
    poison(recipe, p.run(run), train(recipe, p.run(run), false, 3).checkpoint);
  const Outcome whole = train(recipe, p.run("whole"), true);
  EXPECT_EQ(whole.end, TrainEnd::done);
  EXPECT_TRUE(
      contains(whole.out, "5 steps in a row were refused: back to step 2; the text of steps 3 to 8 is left out"))
      << whole.out;
  const CheckpointInfo end = read_manifest(whole.checkpoint);
  EXPECT_EQ(end.position.rollbacks, 1);
  EXPECT_EQ(end.position.refused_in_a_row, 0);

  // Stopped within the refused steps, the run is the same.
  train(recipe, p.run("stopped"), true, 6);
  const Outcome stopped = train(recipe, p.run("stopped"), true);
  EXPECT_EQ(stopped.end, TrainEnd::done);
  EXPECT_TRUE(diff_checkpoints(whole.checkpoint, stopped.checkpoint).empty())
      << joined(diff_checkpoints(whole.checkpoint, stopped.checkpoint));
  EXPECT_EQ(joined(metrics(p.run("whole"))), joined(metrics(p.run("stopped"))));
}

// Steps 3 to 7 of the second stage are refused, and what is left behind begins before the end of the first.
TEST(Trainer, ARollBackOverTheEndOfAStageEvaluatesItAgain) {
  const Place p(recipe_text("checkpoint_every = 1\nkeep = 9", 2, 9));
  const Recipe recipe = p.recipe();
  poison(recipe, p.run("r"), train(recipe, p.run("r"), false, 2).checkpoint);
  const Outcome o = train(recipe, p.run("r"), true);
  EXPECT_EQ(o.end, TrainEnd::done);
  EXPECT_TRUE(contains(o.out, "back to step 1")) << o.out;
  ASSERT_EQ(o.results.size(), 2u);
  EXPECT_TRUE(std::isfinite(o.results[0].held_out.loss));
  int evaluations = 0;
  for (const std::string& line : metrics(p.run("r"))) evaluations += contains(line, "\"evaluation\"");
  EXPECT_EQ(evaluations, 2);
}

TEST(Trainer, ARollBackPassesOverABrokenCheckpoint) {
  const Place p(recipe_text("checkpoint_every = 1\nkeep = 9"));
  const Recipe recipe = p.recipe();
  poison(recipe, p.run("r"), train(recipe, p.run("r"), false, 3).checkpoint);
  const std::string file = p.run("r") + "/checkpoints/step-00000002/model-00001-of-00001.safetensors";
  std::string bytes = slurp(file);
  bytes[bytes.size() / 2] ^= 1;
  spit(file, bytes);
  const Outcome o = train(recipe, p.run("r"), true);
  EXPECT_EQ(o.end, TrainEnd::done);
  EXPECT_TRUE(contains(o.out, "step-00000002 is not used: ")) << o.out;
  EXPECT_TRUE(contains(o.out, "back to step 1")) << o.out;
}

TEST(Trainer, AStartThatFailsLeavesTheFolderFree) {
  const Place p(recipe_text("", 2, 1));
  { const RunFolder nothing_yet(p.run("r"), false); }
  EXPECT_EQ(train(p.recipe(), p.run("r")).end, TrainEnd::done);
  EXPECT_TRUE(contains(error_of([&] { RunFolder again(p.run("r"), false); }), "holds a run"));
}

TEST(Trainer, StepsThatCountNothingAreSkippedWithANoticeAndChangeNothing) {
  std::string text = recipe_text("checkpoint_every = 1\nkeep = 9");
  const size_t from = text.find("[data.sources.plain]"), to = text.find("[[curriculum]]");
  text.replace(from, to - from, "[data.sources.silent]\nuse = \"unweighted\"\n");
  for (const char* mix : {"mix = { plain = 1, lines = 1 }", "mix = { plain = 3, lines = 1 }"})
    text.erase(text.find(mix), std::string(mix).size());
  const Place p(text);
  const Outcome o = train(p.recipe(), p.run("r"));
  EXPECT_EQ(o.end, TrainEnd::failed);
  EXPECT_TRUE(contains(o.out, "notice: step 1 of stage short is skipped: no token of the batch counts")) << o.out;
  EXPECT_TRUE(contains(o.out, "5 steps in a row were refused")) << o.out;

  const Recipe recipe = p.recipe();
  Session start(recipe, registry(), 1, ArenaMode::planned), now(recipe, registry(), 1, ArenaMode::planned);
  for (Session* s : {&start, &now}) s->enter_stage(recipe.curriculum[0]);
  start.init_parameters();
  EXPECT_EQ(load_checkpoint(o.checkpoint, now.memory()).position.skipped, 4);
  for (const StoreEntry& e : start.model().store.entries())
    EXPECT_TRUE(!std::memcmp(start.memory().at(e.name), now.memory().at(e.name), size_t(e.bytes()))) << e.name;
}

TEST(Trainer, AScheduleOfALaterStageIsCheckedBeforeAnythingIsWritten) {
  const Place p(recipe_text("", 2, 1));
  const Recipe recipe = p.recipe(
      {"curriculum.1.schedule.use=wsd", "curriculum.1.schedule.warmup=0.9", "curriculum.1.schedule.decay=0.9"});
  EXPECT_TRUE(contains(error_of([&] { train(recipe, p.run("r")); }), "warmup + decay must be at most 1"));
  EXPECT_FALSE(fs::exists(p.run("r")));
}

}  // namespace
}  // namespace kitbash::test
