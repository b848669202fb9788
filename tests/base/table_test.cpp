#include "base/table.h"

#include <gtest/gtest.h>

#include "kitbash/error.h"

namespace kitbash {
namespace {

TEST(Table, AlignsColumnsAndLeavesNoTrailingBlanks) {
  Table t({"name", "count", "doc"}, "lrl");
  t.row({"kda", "7", "linear"});
  t.row({"gated-mla", "1234", ""});
  EXPECT_EQ(t.text(),
            "name       count  doc\n"
            "kda            7  linear\n"
            "gated-mla   1234\n");
}

TEST(Table, CountsCharactersNotBytes) {
  Table t({"a", "b"});
  t.row({"\xC3\xA9", "x"});
  t.row({"ee", "y"});
  EXPECT_EQ(t.text("  "), "  a   b\n  \xC3\xA9   x\n  ee  y\n");
}

TEST(Table, PrintsOnlyRowsWithoutHeaders) {
  Table t({"", ""});
  t.row({"a"});
  EXPECT_EQ(t.text(), "a\n");
  EXPECT_EQ(t.rows(), 1u);
}

TEST(Table, RefusesARowThatIsTooLong) { EXPECT_THROW(Table({"a"}).row({"1", "2"}), kb::Error); }

}  // namespace
}  // namespace kitbash
