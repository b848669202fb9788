#include "experts.h"

#include <gtest/gtest.h>

#include "elements_reference.h"

using namespace kb::cpu;
using kbtest::Array;
using kbtest::array;
using kbtest::normal;
using kbtest::run;

namespace {

struct Routed {
  Array ids, source, offsets;
};
Routed route(int64_t tokens, int64_t k, int64_t experts, int64_t tile, uint64_t seed) {
  std::mt19937_64 r(seed);
  Routed x{array(KB_I32, {tokens, k}), {}, {}};
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t j = 0, first = int64_t(r() % uint64_t(experts)); j < k; ++j)
      x.ids.set(t * k + j, double((first + j * j) % experts));
  const int64_t rows = tokens * k + std::min(experts, tokens * k) * (tile - 1);
  std::vector<Array> y{array(KB_I32, {rows}), array(KB_I32, {experts + 1})};
  run(kb::kernel_table<ExpertSortKernel>(), {kb::Attr("experts", experts), kb::Attr("tile", tile)}, {&x.ids}, y);
  x.source = y[0], x.offsets = y[1];
  return x;
}

TEST(ExpertSort, IsStablePaddedAndFitsItsBound) {
  for (int64_t tokens : {1, 2, 17, 65, 1000})
    for (int64_t experts : {1, 5, 64})
      for (int64_t tile : {1, 4, 16}) {
        const Routed r = route(tokens, 3, experts, tile, 5);
        Array source = r.source, offsets = r.offsets;
        reference::expert_sort(r.ids, experts, tile, source, offsets);
        ASSERT_EQ(r.source.bytes, source.bytes);
        ASSERT_EQ(r.offsets.bytes, offsets.bytes);
      }
}

TEST(ExpertSort, LeavesOutTokensPastTheExtentAndNamesAWrongExpert) {
  Array ids = array(KB_I32, {4, 2}, {0, 1, 1, 2, 9, 9, 9, 9});
  ids.type.extent = 1;
  const std::vector<kb_attr> attrs = {kb::Attr("experts", 3), kb::Attr("tile", 1)};
  std::vector<Array> y{array(KB_I32, {8}), array(KB_I32, {4})};
  run(kb::kernel_table<ExpertSortKernel>(), attrs, {&ids}, y, {{0, 2}});
  EXPECT_EQ(y[1].at(3), 4);
  EXPECT_EQ(y[0].at(4), -1);
  try {
    run(kb::kernel_table<ExpertSortKernel>(), attrs, {&ids}, y, {{0, 3}});
    FAIL();
  } catch (const kb::Error& e) {
    EXPECT_STREQ(e.what(), "expert of choice 4 must be in [0, 3) but got 9");
  }
}

TEST(Dispatch, AndCombineAgreeWithTheReference) {
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (int64_t w : {1, 2, 3, 5, 17, 63, 64, 65, 1000}) {
      const int64_t tokens = 37, k = 3;
      const Routed r = route(tokens, k, 5, 4, 6);
      const int64_t rows = r.source.size();
      const Array x = normal(dtype, {tokens, w}, 1), e = normal(dtype, {rows, w}, 2);
      std::vector<Array> sent{array(dtype, {rows, w})}, got{array(dtype, {tokens, w})};
      run(kb::kernel_table<DispatchKernel>(), {kb::Attr("active", k)}, {&x, &r.source}, sent);
      run(kb::kernel_table<CombineKernel>(), {kb::Attr("tokens", tokens), kb::Attr("active", k)}, {&e, &r.source}, got);
      Array want = got[0];
      std::fill(want.bytes.begin(), want.bytes.end(), 0);
      for (int64_t i = 0; i < rows * w; ++i) {
        const int64_t s = int64_t(r.source.at(i / w)), t = s / k * w + i % w;
        ASSERT_EQ(sent[0].at(i), s < 0 ? 0 : x.at(t));
        if (s >= 0) want.set(t, want.at(t) + e.at(i));  // rising rows, rounded to the type at each step
      }
      ASSERT_EQ(got[0].bytes, want.bytes);
    }
}

TEST(Combine, GivesZeroToATokenWithoutRows) {
  const Array e = normal(KB_F32, {3, 5}, 1), source = array(KB_I32, {3}, {2, -1, 3});
  std::vector<Array> y{array(KB_F32, {3, 5})};
  run(kb::kernel_table<CombineKernel>(), {kb::Attr("tokens", 3), kb::Attr("active", 2)}, {&e, &source}, y);
  EXPECT_EQ(y[0].at(0), 0);
  EXPECT_EQ(y[0].data<float>()[5], e.data<float>()[0] + e.data<float>()[10]);
  EXPECT_EQ(y[0].at(10), 0);
}

}  // namespace
