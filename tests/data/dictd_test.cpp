#include "data/dictd.h"

#include <gtest/gtest.h>

#include "base/sha256.h"
#include "kitbash/error.h"

namespace kitbash {
namespace {

TEST(Dictd, HeadwordsOfOnePlaceAreOneEntryInTheOrderOfTheText) {
  const auto e = dictd_entries("00-database-info\tA\tD\nb\tBA\tK\nzeta\tD\tF\nalpha\tD\tF\n", 100);
  ASSERT_EQ(e.size(), 2u);
  EXPECT_EQ(e[0].headword, "alpha");
  EXPECT_EQ(e[0].begin, 3u);
  EXPECT_EQ(e[0].size, 5u);
  EXPECT_EQ(e[1].begin, 64u);
}
TEST(Dictd, BadLinesAreErrors) {
  EXPECT_THROW(dictd_entries("a\tA\n", 10), kb::Error);
  EXPECT_THROW(dictd_entries("a\tA\t!\n", 10), kb::Error);
  EXPECT_THROW(dictd_entries("a\tA\tL\n", 10), kb::Error);
  EXPECT_THROW(dictd_entries("a\t////////////\tB\n", 10), kb::Error);
}
TEST(Dictd, AMissingFileIsAnError) { EXPECT_THROW(read_gzip("/nowhere/x.dict.dz"), kb::Error); }

TEST(Sha256, GivesTheDigestsOfTheStandard) {  // FIPS 180-4, and lengths around the padding (sha256sum)
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1000000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace kitbash
