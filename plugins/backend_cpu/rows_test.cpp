#include "rows.h"

#include <gtest/gtest.h>

#include "elements_reference.h"

using namespace kb::cpu;
using kbtest::Array;
using kbtest::array;
using kbtest::normal;
using kbtest::run;

namespace {

Array numbers_below(const kb::Shape& s, int least, int limit, uint64_t seed) {
  std::mt19937_64 r(seed);
  Array a = array(KB_I32, s);
  for (int64_t i = 0; i < a.size(); ++i) a.set(i, double(least + int(r() % uint64_t(limit - least))));
  return a;
}

TEST(Gather, ReadsRowsAndZerosForMinusOne) {
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (int64_t w : {1, 2, 3, 5, 17, 63, 64, 65, 1000}) {
      const Array x = normal(dtype, {11, w}, 1), rows = numbers_below({40}, -1, 11, 2);
      std::vector<Array> y{array(dtype, {40, w})};
      run(kb::kernel_table<GatherKernel>(), {}, {&x, &rows}, y);
      for (int64_t i = 0; i < y[0].size(); ++i) {
        const int64_t r = int64_t(rows.at(i / w));
        ASSERT_EQ(y[0].at(i), r < 0 ? 0 : x.at(r * w + i % w));
      }
    }
}

TEST(Gather, NamesTheRowThatIsOutOfRange) {
  const Array x = normal(KB_F32, {4, 2}, 1), rows = array(KB_I32, {3}, {0, 3, 4});
  std::vector<Array> y{array(KB_F32, {3, 2})};
  try {
    run(kb::kernel_table<GatherKernel>(), {}, {&x, &rows}, y);
    FAIL();
  } catch (const kb::Error& e) {
    EXPECT_STREQ(e.what(), "row 2 must be in [-1, 4) but got 4");
  }
}

TEST(ScatterAdd, AddsRowsInTheirOrderForAnyThreads) {
  for (int64_t w : {1, 2, 3, 5, 17, 63, 64, 65, 1000}) {
    const Array x = normal(KB_F32, {200, w}, 1), rows = numbers_below({200}, -1, 7, 2);
    Array want = array(KB_F32, {7, w});
    for (int64_t r = 0; r < 200; ++r)
      for (int64_t i = 0; i < w && rows.at(r) >= 0; ++i)
        want.data<float>()[int64_t(rows.at(r)) * w + i] += x.data<float>()[r * w + i];
    for (int32_t threads : {1, 4}) {
      std::vector<Array> y{array(KB_F32, {7, w})};
      run(kb::kernel_table<ScatterAddKernel>(), {kb::Attr("rows", 7)}, {&x, &rows}, y, {{}, 0, 0, threads});
      ASSERT_EQ(y[0].bytes, want.bytes) << w;
    }
    std::vector<Array> y{want};
    run(kb::kernel_table<ScatterAddKernel>(), {kb::Attr("rows", 7)}, {&x, &rows}, y, {{}, 1});
    EXPECT_NEAR(y[0].at(0), 2 * want.at(0), 1e-4);
  }
}

TEST(ScatterAdd, SkipsRowsPastTheExtent) {
  Array x = normal(KB_F64, {6, 2}, 1), rows = array(KB_I32, {6}, {0, 1, 0, 99, 99, 99});
  x.type.extent = rows.type.extent = 1;
  std::vector<Array> y{array(KB_F64, {2, 2})};
  run(kb::kernel_table<ScatterAddKernel>(), {kb::Attr("rows", 2)}, {&x, &rows}, y, {{0, 3}});
  EXPECT_EQ(y[0].at(0), x.at(0) + x.at(4));
}

TEST(Take, AndUntakeAreTransposed) {
  const Array x = normal(KB_F64, {9, 13}, 1);
  Array ids = array(KB_I32, {9, 4});
  for (int64_t r = 0; r < 9; ++r)
    for (int64_t j = 0; j < 4; ++j) ids.set(r * 4 + j, double((r + 3 * j) % 13));
  std::vector<Array> y{array(KB_F64, {9, 4})}, back{array(KB_F64, {9, 13})};
  run(kb::kernel_table<TakeKernel>(), {}, {&x, &ids}, y);
  run(kb::kernel_table<UntakeKernel>(), {kb::Attr("width", 13)}, {&y[0], &ids}, back);
  for (int64_t r = 0; r < 9; ++r) {
    std::vector<double> want(13, 0.0);
    for (int64_t j = 0; j < 4; ++j) want[size_t(ids.at(r * 4 + j))] = x.at(r * 13 + int64_t(ids.at(r * 4 + j)));
    for (int64_t i = 0; i < 13; ++i) EXPECT_EQ(back[0].at(r * 13 + i), want[size_t(i)]);
  }
  ids.set(5, 13);
  EXPECT_THROW(run(kb::kernel_table<TakeKernel>(), {}, {&x, &ids}, y), kb::Error);
}

TEST(Topk, AgreesWithAStableSortForTiesInfinitiesAndNaN) {
  std::mt19937_64 r(4);
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (int64_t n : {1, 2, 3, 5, 17, 63, 64, 65, 1000, 4096})
      for (int64_t k : {1, 2, 8, 16, 64}) {
        if (k > n) continue;
        for (int kind = 0; kind < 4; ++kind) {  // plain; many ties; infinities and NaN; mostly NaN
          Array x = normal(dtype, {9, n}, r());
          for (int64_t i = 0; i < x.size(); ++i) {
            const uint64_t u = r() % 8;
            if (kind == 1) x.set(i, double(u % 4));
            if (kind == 2 && u < 4) x.set(i, u == 0 ? NAN : u == 1 ? INFINITY : -INFINITY);
            if (kind == 3 && u < 7) x.set(i, NAN);
          }
          std::vector<Array> y{array(dtype, {9, k}), array(KB_I32, {9, k})};
          std::vector<Array> want = y;
          reference::topk(x, k, want[0], want[1]);
          run(kb::kernel_table<TopkKernel>(), {kb::Attr("k", k)}, {&x}, y);
          ASSERT_EQ(y[1].bytes, want[1].bytes) << n << " " << k << " " << kind;
          for (int64_t i = 0; i < y[0].size(); ++i)
            ASSERT_TRUE(y[0].at(i) == want[0].at(i) || std::isnan(want[0].at(i)));
        }
      }
}

TEST(Topk, ComputesOneOutputAloneAndRefusesTooManyElements) {
  const Array x = array(KB_F32, {1, 4}, {1, 3, 3, 2});
  for (uint64_t unwanted : {1, 2}) {
    std::vector<Array> y{array(KB_F32, {1, 2}), array(KB_I32, {1, 2})};
    run(kb::kernel_table<TopkKernel>(), {kb::Attr("k", 2)}, {&x}, y, {{}, 0, unwanted});
    if (unwanted == 1) {
      EXPECT_EQ(y[1].at(0), 1);
      EXPECT_EQ(y[1].at(1), 2);
    } else {
      EXPECT_EQ(y[0].at(1), 3);
    }
  }
  std::vector<Array> y{array(KB_F32, {1, 5}), array(KB_I32, {1, 5})};
  EXPECT_THROW(run(kb::kernel_table<TopkKernel>(), {kb::Attr("k", 5)}, {&x}, y), kb::Error);
}

}  // namespace
