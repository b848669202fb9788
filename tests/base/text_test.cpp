#include "base/text.h"

#include <gtest/gtest.h>

namespace kitbash {
namespace {

TEST(Split, KeepsEmptyParts) {
  EXPECT_EQ(split("a::b", ':'), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(split("", ':'), (std::vector<std::string>{""}));
  EXPECT_EQ(split("a:", ':'), (std::vector<std::string>{"a", ""}));
}

TEST(Join, IsTheInverseOfSplit) {
  EXPECT_EQ(join(split("x,y,,z", ','), ","), "x,y,,z");
  EXPECT_EQ(join({}, ","), "");
}

TEST(Trim, DropsBlanksOnBothSides) {
  EXPECT_EQ(trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(trim(" \n "), "");
}

TEST(Utf8, AcceptsEveryLengthOfSequence) {
  EXPECT_EQ(invalid_utf8(""), std::string::npos);
  EXPECT_EQ(invalid_utf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"), std::string::npos);
  EXPECT_EQ(code_points("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"), 4u);
}

TEST(Utf8, NamesTheFirstBadByte) {
  EXPECT_EQ(invalid_utf8("ab\xFF"), 2u);
  EXPECT_EQ(invalid_utf8("\x80"), 0u);              // a continuation without a start
  EXPECT_EQ(invalid_utf8("a\xC3"), 1u);             // cut short
  EXPECT_EQ(invalid_utf8("\xC0\xAF"), 0u);          // overlong '/'
  EXPECT_EQ(invalid_utf8("\xE0\x80\xAF"), 0u);      // overlong in three bytes
  EXPECT_EQ(invalid_utf8("\xED\xA0\x80"), 0u);      // a surrogate
  EXPECT_EQ(invalid_utf8("\xF4\x90\x80\x80"), 0u);  // above U+10FFFF
}

}  // namespace
}  // namespace kitbash
