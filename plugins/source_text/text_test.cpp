#include "text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace {

struct File {
  std::string path = (std::filesystem::temp_directory_path() / kb::text("kitbash-text-", getpid(), ".txt")).string();
  explicit File(const std::string& text) { std::ofstream(path, std::ios::binary) << text; }
  ~File() { std::filesystem::remove(path); }
};
TextFile source(const std::string& path, const char* separator = "\n\n") {
  TextFile t;
  t.path = t.held_out = kb::Path(path.c_str());
  t.separator = separator;
  return t;
}
std::vector<std::string> all(const TextFile& t, const char* split = "train") {
  const auto r = t.open(split);
  std::vector<std::string> texts(size_t(r->count()));
  for (size_t i = 0; i < texts.size(); ++i)
    r->sample(0, int64_t(i), kb::Sample{{&texts[i], [](void* s, const char* b, uint64_t n, double) {
                                           static_cast<std::string*>(s)->append(b, n);
                                           return 0;
                                         }}});
  return texts;
}
std::string error(const TextFile& t, const char* split = "train") {
  try {
    t.open(split);
  } catch (const kb::Error& e) {
    return e.what();
  }
  return "";
}
using Texts = std::vector<std::string>;

TEST(Text, CutsAtBlankLinesAndLeavesBlanksOut) {
  const File f("one\ntwo\n\n\n\n  \n\nthree");
  EXPECT_EQ(all(source(f.path)), (Texts{"one\ntwo", "three"}));
}
TEST(Text, AnotherSeparatorOrNone) {
  const File f("a|b\n\nc|");
  EXPECT_EQ(all(source(f.path, "|")), (Texts{"a", "b\n\nc"}));
  EXPECT_EQ(all(source(f.path, "")), (Texts{"a|b\n\nc|"}));
}
TEST(Text, BytesAreTakenAsTheyAre) {
  const std::string odd("\xff\0\x80", 3);
  const File f(odd + "\n\n" + odd);
  EXPECT_EQ(all(source(f.path)), (Texts{odd, odd}));
}
TEST(Text, AHeldOutSplitIsAFileOfItsOwnOrHasNoSamples) {
  const File f("a\n\nb");
  EXPECT_EQ(all(source(f.path), "held_out").size(), 2u);
  TextFile t = source(f.path);
  t.held_out = "";
  EXPECT_EQ(t.open("held_out")->count(), 0);
}
TEST(Text, WhatCannotBeReadIsAnErrorThatNamesTheFile) {
  EXPECT_NE(error(source("/nowhere/x.txt")).find("opening '/nowhere/x.txt' failed: No such file"), std::string::npos);
  EXPECT_NE(error(source("/tmp")).find("'/tmp' is none"), std::string::npos);
  EXPECT_NE(error(source("")).find("'path' must name a file"), std::string::npos);
  EXPECT_NE(error(source("/x"), "test").find("there is no split 'test'"), std::string::npos);
  const File empty(""), blank("\n \n\n");
  EXPECT_NE(error(source(empty.path)).find("has only blanks"), std::string::npos);  // the file of both: written last
}
TEST(Text, AnEmptyFileIsAnError) {
  const File f("");
  EXPECT_NE(error(source(f.path)).find("is empty"), std::string::npos);
  EXPECT_NE(error(source(f.path), "held_out").find("'held_out' must have text"), std::string::npos);
}
TEST(Text, ASampleOutsideIsAnError) {
  const File f("a");
  const auto r = source(f.path).open("train");
  EXPECT_THROW(r->sample(0, 1, {}), kb::Error);
  EXPECT_THROW(r->sample(0, -1, {}), kb::Error);
}

}  // namespace
