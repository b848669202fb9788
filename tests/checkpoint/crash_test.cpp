// A save that is cut short, or refused by the system, at every operation it makes.
#include "checkpoint/folder.h"
#include "faulty_files.h"
#include "fixture.h"

namespace kitbash {
namespace {

struct Case {
  int64_t previous, next;  // steps
  int keep;
};

// A folder with one checkpoint (values 1), into which another (values 2) is saved.
class Folder {
 public:
  explicit Folder(const Case& c) : c_(c) {
    declare_all(old_), declare_all(new_), declare_all(read_);
    old_.fill(1), new_.fill(2), read_.fill(3);
    FaultyFiles quick;
    CheckpointFolder(t_.path(), c.keep, limit(&quick)).save(old_.memory, info_at(c.previous));
  }
  static SaveOptions limit(FileOps* f) { return {.shard_bytes = 2000, .files = f}; }
  std::string save(FaultyFiles& files) {
    try {
      CheckpointFolder(t_.path(), c_.keep, limit(&files)).save(new_.memory, info_at(c_.next));
      return "";
    } catch (const kb::Error& e) {
      EXPECT_EQ(e.code, uint32_t(KB_IO)) << e.what();
      return e.what();
    }
  }
  // What a fresh process finds: 1 the previous, 2 the new one; 0 and a failure: neither.
  int found() {
    std::vector<std::string> notices;
    const std::string path = CheckpointFolder(t_.path(), c_.keep).newest(notices);
    for (const std::string& n : notices) ADD_FAILURE() << n;  // no broken one was ever visible
    if (path.empty()) {
      ADD_FAILURE() << "neither";
      return 0;
    }
    const CheckpointInfo i = load_checkpoint(path, read_.memory);
    if (i.position.step == c_.next && read_.bytes() == new_.bytes()) return 2;
    if (i.position.step == c_.previous && read_.bytes() == old_.bytes()) return 1;
    ADD_FAILURE() << "mixed";
    return 0;
  }
  int leftovers() const {
    int n = 0;
    for (const FolderEntry& e : read_folder(t_.path())) n += e.unfinished;
    return n;
  }
  const std::string& path() const { return t_.path(); }

 private:
  Case c_;
  TempFolder t_;
  Values old_, new_, read_;
};

const Case kCases[] = {{1, 2, 3}, {1, 2, 1}, {2, 2, 1}, {9, 2, 3}};

int64_t operations(const Case& c) {
  Folder f(c);
  FaultyFiles files;
  EXPECT_EQ(f.save(files), "");
  EXPECT_EQ(f.leftovers(), 0);
  return files.count;
}

class Crash : public ::testing::TestWithParam<Case> {};

TEST_P(Crash, StoppedAtAnyOperationThePreviousOrTheNewOneLoads) {
  const int64_t n = operations(GetParam());
  ASSERT_GT(n, 30);
  int before = 0, after = 0;
  for (int64_t i = 0; i < n; ++i) {
    Folder f(GetParam());
    FaultyFiles files;
    files.stop_at = i;
    EXPECT_NE(f.save(files), "") << i;
    const int which = f.found();
    (which == 1 ? before : after) += which != 0;
    FaultyFiles healthy;  // the next save needs no hand, and leaves nothing behind
    EXPECT_EQ(f.save(healthy), "") << i;
    EXPECT_EQ(f.found(), 2) << i;
    EXPECT_EQ(f.leftovers(), 0) << i;
  }
  EXPECT_EQ(before + after, n);
  EXPECT_GT(before, 0);
}

TEST_P(Crash, FailingAtAnyOperationThePreviousOrTheNewOneLoads) {
  const int64_t n = operations(GetParam());
  for (int error : {EIO, ENOSPC}) {
    for (int64_t i = 0; i < n; ++i) {
      Folder f(GetParam());
      FaultyFiles files;
      files.fail_at = i, files.error = error;
      const std::string e = f.save(files);
      EXPECT_NE(f.found(), 0) << i;
      EXPECT_NE(e, "") << i;
      if (!contains(e, "itself is saved)")) {
        EXPECT_EQ(f.leftovers(), 0) << i << " " << e;
        EXPECT_TRUE(error != ENOSPC || (contains(e, " bytes") && contains(e, " free"))) << e;
        EXPECT_TRUE(error != EIO || contains(e, "Input/output error")) << e;
      }
      FaultyFiles healthy;
      EXPECT_EQ(f.save(healthy), "") << i;
      EXPECT_EQ(f.found(), 2) << i;
      EXPECT_EQ(f.leftovers(), 0) << i;
    }
  }
}

// A higher step in the folder is of a course that was left: {9, 2} finds step 9 until it is set aside.
INSTANTIATE_TEST_SUITE_P(Steps, Crash, ::testing::ValuesIn(kCases), [](const auto& i) {
  return "From" + std::to_string(i.param.previous) + "To" + std::to_string(i.param.next) + "Keep" +
         std::to_string(i.param.keep);
});

TEST(Order, DataThenManifestThenRenameThenLatestThenRemoval) {
  Folder f({1, 2, 1});
  FaultyFiles files;
  ASSERT_EQ(f.save(files), "");
  const std::vector<std::string>& t = files.trace;
  auto at = [&](const std::string& line) {
    const auto i = std::find_if(t.begin(), t.end(), [&](const std::string& s) { return s.starts_with(line); });
    EXPECT_NE(i, t.end()) << line;
    return i - t.begin();
  };
  auto last = [&](const std::string& line) {
    std::ptrdiff_t n = -1;
    for (size_t i = 0; i < t.size(); ++i)
      if (t[i].starts_with(line)) n = std::ptrdiff_t(i);
    EXPECT_GE(n, 0) << line;
    return n;
  };
  const std::string step = f.path() + "/step-00000002", tmp = step + ".tmp/";
  int shards = 0;
  for (const auto& e : fs::directory_iterator(step)) {
    const std::string name = e.path().filename().string();
    if (!name.ends_with(".safetensors")) continue;
    ++shards;
    EXPECT_LT(last("write " + tmp + name), at("sync " + tmp + name));
    EXPECT_LT(at("sync " + tmp + name), at("create " + tmp + "manifest.pb"));
  }
  EXPECT_GE(shards, 3);
  EXPECT_LT(last("write " + tmp + "manifest.pb"), at("sync " + tmp + "manifest.pb"));
  EXPECT_LT(at("sync " + tmp + "manifest.pb"), at("create " + tmp + "manifest.sum"));
  EXPECT_LT(at("sync " + tmp + "manifest.sum"), at("sync_folder " + step + ".tmp"));
  const auto rename = at("rename " + step + ".tmp " + step);
  EXPECT_LT(at("sync_folder " + step + ".tmp"), rename);
  EXPECT_EQ(t[size_t(rename) + 1], "sync_folder " + f.path());
  EXPECT_LT(rename + 1, at("create " + f.path() + "/latest.tmp"));
  const auto latest = at("rename " + f.path() + "/latest.tmp ");
  EXPECT_LT(at("sync " + f.path() + "/latest.tmp"), latest);
  EXPECT_EQ(t[size_t(latest) + 1], "sync_folder " + f.path());
  EXPECT_LT(latest + 1, at("rename " + f.path() + "/step-00000001 "));
  EXPECT_LT(latest + 1, at("remove "));
  EXPECT_EQ(t.back(), "remove_folder " + f.path() + "/step-00000001.tmp");
}

TEST(DiskFull, TheMessageHasBytesNeededAndFreeBeforeAnythingIsWritten) {
  Folder f({1, 2, 3});
  FaultyFiles files;
  files.room = 100;
  const std::string e = f.save(files);
  EXPECT_TRUE(contains(e, "needs ") && contains(e, "has 100 free")) << e;
  EXPECT_TRUE(files.trace.empty());
  EXPECT_EQ(f.found(), 1);
  files.room = -1;
  EXPECT_EQ(f.save(files), "");
  EXPECT_EQ(f.found(), 2);
}

}  // namespace
}  // namespace kitbash
