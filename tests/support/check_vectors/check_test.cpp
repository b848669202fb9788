#include "check.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "kitbash/error.h"
#include "routing.h"
#include "rules.h"

namespace check_vectors {
namespace {

Array array(std::vector<double> v) { return {{int64_t(v.size())}, v, false}; }

TEST(ErrorOf, IsRelativeToTheWantedNorm) {
  EXPECT_DOUBLE_EQ(error_of(array({3, 5}), array({3, 4}), 0), 0.2);
  EXPECT_EQ(error_of(array({0, 0}), array({0, 0}), 0), 0);
}

TEST(ErrorOf, MeasuresSmallGradientsAgainstTheFloor) {
  EXPECT_DOUBLE_EQ(error_of(array({1e-12}), array({0}), 1e-3), 1e-9);
  EXPECT_TRUE(std::isinf(error_of(array({1e-12}), array({0}), 0)));
}

TEST(ErrorOf, LetsNoNanPass) { EXPECT_FALSE(error_of(array({NAN}), array({1}), 0) <= 1e9); }

TEST(BestExperts, GivesTiesToTheLowerId) {
  const Array scores{{2, 4}, {.5, .7, .7, .1, .2, .2, .2, .2}, false};
  EXPECT_EQ(best_experts(scores, {}, 3).v, (std::vector<double>{1, 2, 0, 0, 1, 2}));
  EXPECT_EQ(best_experts(scores, array({0, 0, 0, 1}), 1).v, (std::vector<double>{3, 3}));
}

TEST(SettleTies, AcceptsOnlyWhatRoundingCanDo) {
  const Array scores{{2, 3}, {.5, .5 + 1e-8, .1, .9, .2, .1}, false};
  const Array got{{2, 1}, {0, 1}, true};  // token 0: a near tie; token 1: plainly wrong
  EXPECT_EQ(settle_ties(got, scores, {}, 1e-6).v, (std::vector<double>{1, 1}));
  EXPECT_EQ(settle_ties(got, scores, {}, 0).v, got.v);
}

TEST(SettleTies, KeepsAnExpertThatIsTakenTwice) {
  const Array scores{{1, 3}, {.5, .5, .5}, false}, got{{1, 2}, {1, 1}, true};
  EXPECT_EQ(settle_ties(got, scores, {}, 1e-6).v, got.v);
}

TEST(Loads, RefusesIdsThatAreNoExperts) {
  EXPECT_EQ(loads(array({0, 2, 2}), 3).v, (std::vector<double>{1, 0, 2}));
  EXPECT_THROW(loads(array({3}), 3), kb::Error);
  EXPECT_THROW(loads(array({NAN}), 3), kb::Error);
}

TEST(Toml, WritesFloatsThatReadBackAndAreFloats) {
  EXPECT_EQ(toml(4), "4.0");
  EXPECT_EQ(toml(1e-5), "1e-05");
  EXPECT_EQ(std::stod(toml(0.1 + 0.2)), 0.1 + 0.2);
}

class Files : public testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() / ("vector_" + std::to_string(::getpid()))).string();
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string path_;
};

TEST_F(Files, GiveOneDocumentARowUnlessBordersAreGiven) {
  save(path_, {{"in.x", array({1})}});
  EXPECT_EQ(VectorFile(path_).borders(2, 5).v, (std::vector<double>{0, 5, 10}));
  Array cu = array({0, 2, 5});
  cu.integer = true;
  save(path_, {{"in.cu_seqlens", cu}});
  EXPECT_EQ(VectorFile(path_).borders(1, 5).v, (std::vector<double>{0, 2, 5}));
  EXPECT_EQ(VectorFile(path_).borders(2, 5).v, (std::vector<double>{0, 2, 5, 7, 10}));
}

TEST_F(Files, CountEveryTensorThatWasNotCompared) {
  save(path_, {{"out.y", array({1, 2})}, {"grad.x", array({1})}, {"in.x", array({1})}, {"out.z", array({1})}});
  const VectorFile file(path_);
  Tally tally;
  Check check(file, "f64", 1e-9, true, tally);
  check.compare("out.y", array({1, 2}));
  EXPECT_EQ(tally.failed, 0);
  check.compare("out.z", array({1, 2}));  // another size
  EXPECT_EQ(tally.failed, 1);
  check.finish("");
  EXPECT_EQ(tally.failed, 2);
  EXPECT_EQ(tally.tensors, 3);
}

TEST_F(Files, AllowATensorWhatRoundedOperandsAloneDoToIt) {
  save(path_, {{"out.y", array({1, 2})}, {"out.z", array({1, 2})}, {"grad.none", Array{{0, 3}, {}, false}}});
  const VectorFile file(path_);
  Tally tally;
  std::map<std::string, double> errors;
  Check measure(file, "f32", 0, false, tally);
  measure.only_measure(errors);
  measure.compare("out.y", array({1.1, 2}));
  measure.finish("");
  EXPECT_EQ(tally.tensors, 0);
  EXPECT_NEAR(errors.at("out.y"), 0.1 / std::sqrt(5), 1e-9);
  Check check(file, "bf16", 1e-2, false, tally);
  check.allow(errors, 3);
  check.compare("out.y", array({1.25, 2}));  // 2.5 times as far
  EXPECT_EQ(tally.failed, 0);
  check.compare("out.y", array({1.35, 2}));
  check.compare("out.z", array({1.1, 2}));  // not measured: the limit alone
  EXPECT_EQ(tally.failed, 2);
  check.compare("grad.none", {}, "grad.none");  // empty, and the probe gave none
  EXPECT_EQ(tally.failed, 2);
}

TEST(RoundedToBf16, IsToNearestWithTiesToEven) {
  const Array got = rounded_to_bf16(array({1, 1 + 0x1p-8, 1 + 0x3p-8, 1 + 0x1.1p-8, -3.14159, INFINITY}));
  EXPECT_EQ(got.v, (std::vector<double>{1, 1, 1 + 0x1p-6, 1 + 0x1p-7, -3.140625, INFINITY}));
  EXPECT_EQ(rounded_to_bf16(Array{{1}, {16777217}, true}).v[0], 16777217);
}

}  // namespace
}  // namespace check_vectors
