#include "base/number.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kitbash {
namespace {

TEST(HumanCount, HasThreeSignificantDigitsAndAUnit) {
  EXPECT_EQ(human_count(2.7795e12), "2.78 T");
  EXPECT_EQ(human_count(104.19e9), "104 B");
  EXPECT_EQ(human_count(12345), "12.3 K");
  EXPECT_EQ(human_count(-4.5e6), "-4.50 M");
}

TEST(HumanCount, KeepsSmallWholeNumbersWhole) {
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(7), "7");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_count(0.25), "0.25");
}

TEST(HumanCount, RoundsUpIntoTheNextUnit) {
  EXPECT_EQ(human_count(999.4e3), "999 K");
  EXPECT_EQ(human_count(999.6e3), "1.00 M");
  EXPECT_EQ(human_count(9.999e3), "10.0 K");
}

TEST(HumanCount, SurvivesWhatIsNoFigure) {
  EXPECT_EQ(human_count(NAN), "nan");
  EXPECT_EQ(human_count(-INFINITY), "-inf");
  EXPECT_EQ(human_count(5e18), "5000 P");
}

TEST(HumanBytes, StepsByThousandOrBy1024) {
  EXPECT_EQ(human_bytes(27648), "27.6 KB");
  EXPECT_EQ(human_bytes(512), "512 B");
  EXPECT_EQ(human_binary(12.4 * 1024 * 1024 * 1024), "12.4 GiB");
  EXPECT_EQ(human_binary(1023), "1023 B");
  EXPECT_EQ(human_binary(1024), "1.00 KiB");
}

}  // namespace
}  // namespace kitbash
