// The layout of every struct and the number of every constant in abi.h, against explicit numbers.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <set>
#include <string>

#include "kitbash/abi.h"

namespace {

struct Row {
  const char *structure, *field;  // field empty: the whole struct
  size_t offset, size;            // of this build
  size_t golden_offset, golden_size;
};
#define FIELD(S, f, offset, size) \
  { #S, #f, offsetof(S, f), sizeof(((S*)nullptr)->f), offset, size }
#define SIZE(S, size) \
  { #S, "", 0, sizeof(S), 0, size }
const Row rows[] = {
#include "layout.inc"
};

TEST(AbiLayout, of_every_field_is_the_golden_one) {
  for (const Row& r : rows) {
    EXPECT_EQ(r.offset, r.golden_offset) << "offset of " << r.structure << "." << r.field;
    EXPECT_EQ(r.size, r.golden_size) << "size of " << r.structure << "." << r.field;
  }
}

TEST(AbiLayout, covers_every_struct_of_the_header_up_to_its_end) {
  std::ifstream f(KITBASH_ABI_FILE);
  const std::string text{std::istreambuf_iterator<char>(f), {}};
  std::set<std::string> in_header, in_table;
  const std::regex end_of_struct("\\n\\} (kb_\\w+);");
  for (std::sregex_iterator it(text.begin(), text.end(), end_of_struct), end; it != end; ++it)
    in_header.insert((*it)[1]);
  for (const Row& r : rows) in_table.insert(r.structure);
  for (const std::string& s : in_header) {
    const std::regex is_enum("typedef enum \\{[^}]*\\} " + s + ";");
    if (!std::regex_search(text, is_enum)) {
      EXPECT_TRUE(in_table.count(s)) << s << " has no row in layout.inc";
    }
  }
  // Between the end of the last field and the end of its struct there is room for padding only.
  size_t last = 0;
  for (const Row& r : rows) {
    if (*r.field)
      last = r.offset + r.size;
    else
      EXPECT_LT(r.size - last, 8u) << r.structure << " has a field that is not in layout.inc";
  }
}

TEST(AbiConstants, have_their_golden_numbers) {
  EXPECT_EQ(KB_ABI_MAJOR, 1);
  EXPECT_EQ(KB_ABI_MINOR, 0);
  EXPECT_EQ(KB_MAX_RANK, 8);
  EXPECT_EQ(KB_MAX_OUT, 16);
  EXPECT_EQ(KB_MAX_IN, 256);
  const struct {
    const char* name;
    int value, golden;
  } constants[] = {
#define CONSTANT(c, n) {#c, c, n}
      CONSTANT(KB_OK, 0),
      CONSTANT(KB_INVALID, 1),
      CONSTANT(KB_UNSUPPORTED, 2),
      CONSTANT(KB_IO, 3),
      CONSTANT(KB_INTERNAL, 4),
      CONSTANT(KB_NONE, 0),
      CONSTANT(KB_U8, 1),
      CONSTANT(KB_I32, 2),
      CONSTANT(KB_I64, 3),
      CONSTANT(KB_BF16, 4),
      CONSTANT(KB_F32, 5),
      CONSTANT(KB_F64, 6),
      CONSTANT(KB_COMPUTE, 64),
      CONSTANT(KB_WIDE, 65),
      CONSTANT(KB_INT, 1),
      CONSTANT(KB_FLOAT, 2),
      CONSTANT(KB_TEXT, 3),
      CONSTANT(KB_INTS, 4),
      CONSTANT(KB_FLOATS, 5),
      CONSTANT(KB_MATRIX, 0),
      CONSTANT(KB_VECTOR, 1),
      CONSTANT(KB_EMBEDDING, 2),
      CONSTANT(KB_OTHER, 3),
      CONSTANT(KB_NO_DECAY, 1),
      CONSTANT(KB_PER_EXPERT, 2),
      CONSTANT(KB_STATE_MODEL, 0),
      CONSTANT(KB_STATE_STEP, 1),
      CONSTANT(KB_STATE_OPTIMIZER, 2),
      CONSTANT(KB_STATE_SEQUENCE, 3),
      CONSTANT(KB_STATE_TOKEN, 4),
      CONSTANT(KB_REPORT, 0),
      CONSTANT(KB_LOSS, 1),
      CONSTANT(KB_TRAIN, 0),
      CONSTANT(KB_EVAL, 1),
      CONSTANT(KB_PREFILL, 2),
      CONSTANT(KB_DECODE, 3),
      CONSTANT(KB_STEP, 4),
      CONSTANT(KB_UPDATE, 5),
      CONSTANT(KB_POINTWISE, 1),
      CONSTANT(KB_VIEW, 2),
      CONSTANT(KB_RANDOM, 4),
      CONSTANT(KB_COLLECTIVE, 8),
      CONSTANT(KB_SOURCE, 16),
      CONSTANT(KB_CPU, 0),
      CONSTANT(KB_CUDA, 1),
  };
  for (const auto& c : constants) EXPECT_EQ(c.value, c.golden) << c.name;
}

}  // namespace
