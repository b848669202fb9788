#include <gtest/gtest.h>

#include <set>

#include "data/dataset.h"
#include "kitbash/error.h"

namespace kitbash {
namespace {

using Entries = std::vector<std::pair<std::string, std::string>>;

TEST(Split, IsByHeadwordAndNothingStraddles) {
  Entries e;
  for (int i = 0; i < 1000; ++i) {
    const std::string word = kb::text("Word ", i / 2);  // two entries a headword
    e.emplace_back(word, kb::text(word, "\n\n   meaning ", i, "\n"));
  }
  const SplitTexts s = split_entries(e, 10);
  EXPECT_EQ(s.train.size() + s.held_out.size(), 1000u);
  EXPECT_NEAR(double(s.held_out.size()), 100, 40);  // two entries at a time: standard deviation 13
  std::set<std::string> train;
  for (const auto& [word, text] : s.train) train.insert(word);
  for (const auto& [word, text] : s.held_out) EXPECT_FALSE(train.count(word));
}
TEST(Split, DoesNotDependOnTheOtherEntries) {
  Entries e;
  for (int i = 0; i < 200; ++i) e.emplace_back(kb::text(i), kb::text(i, "\n   body ", i));
  const SplitTexts all = split_entries(e, 20);
  const SplitTexts half = split_entries(Entries(e.begin(), e.begin() + 100), 20);
  ASSERT_LE(half.held_out.size(), all.held_out.size());
  EXPECT_TRUE(std::equal(half.held_out.begin(), half.held_out.end(), all.held_out.begin()));
}
TEST(Split, RepeatedTextsAreLeftOutAndBodiesOfTrainAreNotHeldOut) {
  Entries e{{"a", "One  text"}, {"b", "one\ntext"}};
  EXPECT_EQ(split_entries(e, 10).duplicates, 1);
  e.clear();
  for (int i = 0; i < 100; ++i) e.emplace_back(kb::text("w", i), kb::text("w", i, "\n\n   See {this}."));
  const SplitTexts s = split_entries(e, 50);
  EXPECT_TRUE(s.held_out.empty());
  EXPECT_GT(s.moved, 20);
  EXPECT_EQ(s.train.size(), 100u);
}

}  // namespace
}  // namespace kitbash
