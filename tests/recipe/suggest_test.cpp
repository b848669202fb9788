#include "recipe/suggest.h"

#include <gtest/gtest.h>

namespace kitbash {
namespace {

TEST(Suggest, CountsInsertDeleteReplaceAndSwap) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("kda", "kdaa"), 1);
  EXPECT_EQ(edit_distance("head_dmi", "head_dim"), 1);
  EXPECT_EQ(edit_distance("muon", "adamw"), 5);
}
TEST(Suggest, OffersTheNearestOnlyWithinTwoOrAThird) {
  EXPECT_EQ(nearest("head_dmi", {"heads", "head_dim", "conv"}), "head_dim");
  EXPECT_EQ(nearest("residul", {"residual", "norm"}), "residual");
  EXPECT_EQ(nearest("completely", {"heads"}), "");
  EXPECT_EQ(nearest("batch_tokns_x", {"batch_tokens"}), "batch_tokens");  // three edits in thirteen letters
}
TEST(Suggest, NeverOffersAnotherWordForAShortName) {
  EXPECT_EQ(nearest("ab", {"lr"}), "");
  EXPECT_EQ(nearest("x", {"y"}), "");
  EXPECT_EQ(nearest("", {"a"}), "");
}
TEST(Suggest, TakesTheFirstByNameWhenSeveralAreEquallyNear) { EXPECT_EQ(nearest("kdx", {"kdz", "kda"}), "kda"); }
TEST(Suggest, ListsAShortChoiceWhenNothingIsNear) {
  EXPECT_EQ(did_you_mean_or_list("mamba", {"kda", "gated-mla"}), "; there are: kda, gated-mla");
  EXPECT_EQ(did_you_mean_or_list("kdaa", {"kda", "gated-mla"}), "; did you mean 'kda'?");
  EXPECT_EQ(did_you_mean("mamba", {"kda"}), "");
}

}  // namespace
}  // namespace kitbash
