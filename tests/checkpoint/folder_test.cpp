#include "checkpoint/folder.h"

#include "faulty_files.h"
#include "fixture.h"

namespace kitbash {
namespace {

std::string names(const std::string& folder) {
  std::string s;
  for (const std::string& n : names_in(folder)) s += (s.empty() ? "" : " ") + n;
  return s;
}

class FolderOf : public ::testing::Test {
 protected:
  FolderOf() { declare_all(v), v.fill(1); }
  std::string save(int64_t step, int keep = 3) {
    return CheckpointFolder(t.path(), keep).save(v.memory, info_at(step));
  }
  void break_it(const std::string& step) {
    const std::string file = t.path() + "/" + step + "/model-00001-of-00001.safetensors";
    std::string s = slurp(file);
    s.back() = char(s.back() ^ 1);
    spit(file, s);
  }
  TempFolder t;
  Values v;
};

TEST_F(FolderOf, StepNamesAreRead) {
  EXPECT_EQ(step_name(1000), "step-00001000");
  EXPECT_EQ(step_name(1234567890), "step-1234567890");
  EXPECT_EQ(step_of("step-00001000"), 1000);
  EXPECT_EQ(step_of("step-1234567890"), 1234567890);
  for (const char* s : {"step-1000", "step-0000100x", "step-00001000.tmp", "step-00001000.left", "latest", "step-",
                        "step-000000001000", "step--0000001", ""})
    EXPECT_EQ(step_of(s), -1) << s;
}

TEST_F(FolderOf, TheNewestAreKeptAndLatestNamesTheLast) {
  for (int64_t s = 1; s <= 5; ++s) save(s, 2);
  EXPECT_EQ(names(t.path()), "latest step-00000004 step-00000005");
  EXPECT_EQ(slurp(t.path() + "/latest"), "step-00000005\n");
}

TEST_F(FolderOf, AStaleTemporaryIsRemovedAndNeverAdopted) {
  save(1);
  fs::copy(t.path() + "/step-00000001", t.path() + "/step-00000007.tmp", fs::copy_options::recursive);
  spit(t.path() + "/latest.tmp", "step");
  spit(t.path() + "/notes.tmp", "of the user");
  std::vector<std::string> notices;
  EXPECT_EQ(CheckpointFolder(t.path()).newest(notices), t.path() + "/step-00000001");
  EXPECT_EQ(CheckpointFolder(t.path()).list().size(), 1u);
  save(2);
  EXPECT_EQ(names(t.path()), "latest notes.tmp step-00000001 step-00000002");
}

TEST_F(FolderOf, NewestFallsBackToTheNextThatVerifies) {
  save(1), save(2), save(3);
  break_it("step-00000003");
  fs::remove(t.path() + "/step-00000002/manifest.pb");
  std::vector<std::string> notices;
  EXPECT_EQ(CheckpointFolder(t.path()).newest(notices), t.path() + "/step-00000001");
  ASSERT_EQ(notices.size(), 2u);
  EXPECT_TRUE(contains(notices[0], "step-00000003 is broken") &&
              contains(notices[0], "model-00001-of-00001.safetensors: "));
  EXPECT_TRUE(contains(notices[1], "step-00000002/manifest.pb"));
}

TEST_F(FolderOf, NewestOfNothingIsNothing) {
  std::vector<std::string> notices;
  EXPECT_EQ(CheckpointFolder(t.path()).newest(notices), "");
  EXPECT_EQ(CheckpointFolder(t.path() + "/absent").newest(notices), "");
  EXPECT_TRUE(notices.empty());
}

TEST_F(FolderOf, TheSameStepIsReplaced) {
  save(1);
  v.fill(2);
  const std::string path = save(1);
  Values w;
  declare_all(w), w.fill(9);
  load_checkpoint(path, w.memory);
  EXPECT_EQ(w.bytes(), v.bytes());
  EXPECT_EQ(names(t.path()), "latest step-00000001");
}

TEST_F(FolderOf, LaterStepsOfACourseThatWasLeftAreSetAside) {
  save(1), save(2), save(3);
  break_it("step-00000003");
  save(2, 1);  // resumed from 2 or before; keep 1 must not cost the one just saved
  EXPECT_EQ(names(t.path()), "latest step-00000002 step-00000003.left");
  save(3), save(2);
  EXPECT_EQ(names(t.path()), "latest step-00000002 step-00000003.left");
}

TEST_F(FolderOf, ListIsByStepWithBrokenOnesInTheNotices) {
  save(10), save(9), save(11);
  std::string s = slurp(t.path() + "/step-00000009/manifest.pb");
  spit(t.path() + "/step-00000009/manifest.pb", s + "x");
  std::vector<std::string> notices;
  const auto all = CheckpointFolder(t.path()).list(&notices);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].position.step, 11);
  ASSERT_EQ(notices.size(), 1u);
}

TEST_F(FolderOf, WhatFailsAfterPublishingIsANotice) {
  save(1);
  FaultyFiles probe;
  CheckpointFolder(t.path(), 3, {.files = &probe}).save(v.memory, info_at(2));
  FaultyFiles files;
  files.fail_at = probe.count - 1;  // the sync after `latest`
  std::vector<std::string> notices;
  EXPECT_EQ(CheckpointFolder(t.path(), 3, {.files = &files}).save(v.memory, info_at(3), &notices),
            t.path() + "/step-00000003");
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_TRUE(contains(notices[0], "itself is saved"));
}

TEST_F(FolderOf, DiffNamesWhatDiffers) {
  const std::string a = save(1), b = CheckpointFolder(t.path() + "/b").save(v.memory, info_at(1));
  EXPECT_TRUE(diff_checkpoints(a, b).empty());
  // Other files, same values.
  const std::string c =
      CheckpointFolder(t.path() + "/c", 3, {.shard_bytes = 600, .files = nullptr}).save(v.memory, info_at(1));
  EXPECT_TRUE(diff_checkpoints(a, c).empty());

  float* norm = reinterpret_cast<float*>(v.memory.at("layer0.norm"));
  std::fill_n(norm, 12, 1.0f);
  const std::string d = CheckpointFolder(t.path() + "/d").save(v.memory, info_at(1));
  norm[3] = 1.5f, norm[7] = 0.75f, norm[8] = NAN;
  CheckpointInfo other = info_at(1);
  other.position.data.drawn["jargon"] = 40;
  other.position.data.turn = 2, other.position.data.open = {{0, {"jargon", 39, 1}}, {10, {"foldoc", 7, 4096}}};
  other.recipe = "name = \"tiny\"\n[model]\ndim = 16\n";
  const std::string e = CheckpointFolder(t.path() + "/e").save(v.memory, other);
  const std::vector<std::string> want = {
      "position data drawn of jargon: 39 against 40",
      "position data turn: 1 against 2",
      "position data lane 0: sample 38 of jargon from token 12 against sample 39 of jargon from token 1",
      "position data lane 3: only in the first",
      "position data lane 10: only in the second",
      "recipe - dim = 12",
      "recipe + dim = 16",
      "tensor layer0.norm: 3 of 12 elements differ, by at most 0.5 (element 3), 1 of them by no finite number"};
  EXPECT_EQ(diff_checkpoints(d, e), want);
}

}  // namespace
}  // namespace kitbash
