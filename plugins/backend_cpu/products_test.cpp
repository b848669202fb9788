// Matrix products against the plain loops. Tolerances: double 1e-12; float 2e-6 in norm: sums in float of up to 300
// terms, whose roundings (6e-8 each) grow like the root of their number.
#include <gtest/gtest.h>

#include "grouped.h"
#include "matmul.h"
#include "reference.h"
#include "tests/support/kernel_call.h"

namespace kb::cpu {
namespace {
using kbtest::absent;
using kbtest::Array;
using kbtest::array;
using kbtest::normal;

double tolerance(uint32_t dtype) { return dtype == KB_F64 ? 1e-12 : 2e-6; }
const std::vector<kb_attr> flags(bool ta, bool tb) { return {default_attr("ta", ta), default_attr("tb", tb)}; }

// rows: of a's axis 0 in use; 0 = all
double matmul_error(uint32_t dtype, int64_t batch, int64_t m, int64_t n, int64_t k, bool ta, bool tb, bool b_batched,
                    bool add, int64_t rows = 0, int32_t threads = 3) {
  const bool deep = batch > 1;
  const auto shape = [&](int64_t r, int64_t c, bool with) { return with ? Shape{batch, r, c} : Shape{r, c}; };
  Array a = normal(dtype, shape(ta ? k : m, ta ? m : k, deep), 1),
        b = normal(dtype, shape(tb ? n : k, tb ? k : n, b_batched), 2);
  std::vector<Array> out{normal(dtype, shape(m, n, deep), 3)};
  kbtest::Options o;
  o.accumulate = add, o.threads = threads;
  if (rows) {
    o.extents = {0, int32_t(rows)};
    a.type.extent = 1;
    const int64_t width = a.size() / a.type.shape[0];
    for (int64_t i = rows * width; i < a.size(); ++i) a.set(i, 0);
    if (ta && !deep) {
      b.type.extent = 1;
      for (int64_t i = rows * n; i < b.size() && !tb; ++i) b.set(i, 0);
    } else {
      out[0].type.extent = 1;
    }
  }
  Array want = out[0];
  floats(dtype, [&]<class T>() {
    reference::matmul<T>(batch, m, n, k, ta, tb, b_batched, add, a.data<T>(), b.data<T>(), want.data<T>());
  });
  kbtest::run(kernel_table<Matmul>(), flags(ta, tb), {&a, &b}, out, o);
  if (rows && out[0].type.extent) {  // the host clears the rest
    const int64_t width = out[0].size() / out[0].type.shape[0];
    for (int64_t i = rows * width; i < want.size(); ++i) out[0].set(i, 0), want.set(i, 0);
  }
  return kbtest::relative_error(out[0], want);
}

TEST(Matmul, EqualsThePlainLoopsOverOddSizes) {
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (int64_t m : {1, 2, 3, 5, 17, 64, 65, 127})
      for (int64_t n : {1, 2, 3, 5, 17, 64, 65, 127})
        for (int64_t k : {1, 2, 3, 5, 17, 64, 65, 127})
          for (int t = 0; t < 4; ++t) {
            ASSERT_LT(matmul_error(dtype, 1, m, n, k, t & 1, t & 2, false, (m + n + k) % 2), tolerance(dtype))
                << dtype_name(dtype) << " " << m << "x" << n << "x" << k << " ta " << (t & 1) << " tb " << (t >> 1);
          }
}

TEST(Matmul, BlocksAddUpAcrossDepthAndWidth) {
  for (int t = 0; t < 4; ++t) EXPECT_LT(matmul_error(KB_F64, 1, 130, 300, 530, t & 1, t & 2, false, t == 1), 1e-12);
  for (int t = 0; t < 4; ++t) EXPECT_LT(matmul_error(KB_F32, 1, 2, 300, 530, t & 1, t & 2, false, t == 1), 2e-6);
}

TEST(Matmul, TakesBatchesWithOneOrManyRightSides) {
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (int64_t m : {2, 19})
      for (int t = 0; t < 8; ++t)
        EXPECT_LT(matmul_error(dtype, 5, m, 33, 21, t & 1, t & 2, t & 4, t % 3 == 0), tolerance(dtype))
            << t << " m " << m;
}

TEST(Matmul, UsesOnlyTheRowsInUse) {
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (int64_t rows : {1, 4, 63, 64, 65, 130, 200})
      for (bool ta : {false, true})
        for (bool add : {false, true})
          EXPECT_LT(matmul_error(dtype, 1, ta ? 40 : 200, 24, ta ? 200 : 40, ta, !ta, false, add, rows),
                    tolerance(dtype))
              << rows << " ta " << ta;
  EXPECT_LT(matmul_error(KB_F32, 6, 20, 24, 40, false, false, true, false, 4), 2e-6);
}

TEST(Matmul, NothingInUseGivesZerosOrLeavesTheSum) {
  Array a = array(KB_F32, {0, 8}), b = array(KB_F32, {0, 5});
  std::vector<Array> out{normal(KB_F32, {8, 5}, 3)};
  const Array before = out[0];
  kbtest::Options add;
  add.accumulate = 1;
  kbtest::run(kernel_table<Matmul>(), flags(true, false), {&a, &b}, out, add);
  EXPECT_EQ(out[0].bytes, before.bytes);
  kbtest::run(kernel_table<Matmul>(), flags(true, false), {&a, &b}, out);
  for (int64_t i = 0; i < out[0].size(); ++i) EXPECT_EQ(out[0].at(i), 0);
}

TEST(Matmul, DeclinesBf16InASentence) {
  Array a = array(KB_BF16, {4, 4}), b = array(KB_BF16, {4, 4});
  std::vector<Array> out{array(KB_BF16, {4, 4})};
  try {
    kbtest::run(kernel_table<Matmul>(), flags(false, false), {&a, &b}, out);
    FAIL() << "bf16 was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("must be f32 or f64 on the cpu but got bf16"), std::string::npos) << e.what();
  }
}

TEST(Matmul, DeclinesSizesThatOneDnnCannotCount) {
  kb_tensor x{}, w{}, y{};
  x.type.dtype = w.type.dtype = y.type.dtype = KB_F32;
  x.type.rank = w.type.rank = y.type.rank = 2;
  x.type.shape[0] = y.type.shape[0] = int64_t(1) << 32, x.type.shape[1] = w.type.shape[1] = 64;
  w.type.shape[0] = y.type.shape[1] = 8;
  kb_tensor in[] = {x, w};
  const std::vector<kb_attr> attrs = flags(false, true);
  kb_call c{};
  c.in = in, c.n_in = 2, c.out = &y, c.n_out = 1, c.attr = attrs.data(), c.n_attr = 2;
  kb_error e{};
  EXPECT_NE(kernel_table<Matmul>()->supports(&c, &e), 0);
  EXPECT_STREQ(e.message, "[matmul] m must be at most 2147483647 on the cpu but got 4294967296; lower micro_tokens");
}

TEST(Matmul, DoubleBitsDoNotDependOnTheThreadCount) {
  Array a = normal(KB_F64, {300, 90}, 1), b = normal(KB_F64, {90, 200}, 2);
  std::vector<Array> x{array(KB_F64, {300, 200})}, y = x;
  kbtest::Options one, five;
  one.threads = 1, five.threads = 5;
  kbtest::run(kernel_table<Matmul>(), flags(false, false), {&a, &b}, x, one);
  kbtest::run(kernel_table<Matmul>(), flags(false, false), {&a, &b}, y, five);
  EXPECT_EQ(x[0].bytes, y[0].bytes);
}

// ---- experts
const std::vector<std::vector<double>> kOffsets{{0, 3, 3, 40, 41}, {0, 0, 0, 0, 0}, {0, 64, 64, 64, 64},
                                                {0, 0, 0, 0, 64},  {0, 1, 2, 3, 4}, {0, 17, 34, 50, 64}};

TEST(GroupedLinear, EqualsThePlainLoopsForAnySegments) {
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (const auto& border : kOffsets)
      for (int64_t in : {1, 17, 65})
        for (int64_t out : {1, 3, 48, 127})
          for (bool tw : {false, true})
            for (bool add : {false, true}) {
              const Array x = normal(dtype, {64, in}, 1), off = array(KB_I32, {5}, border);
              const Array w = normal(dtype, tw ? Shape{4, out, in} : Shape{4, in, out}, 2);
              std::vector<Array> y{normal(dtype, {64, out}, 3)};
              Array want = y[0];
              floats(dtype, [&]<class T>() {
                reference::grouped_linear<T>(64, in, out, 4, off.data<int32_t>(), tw, add, x.data<T>(), w.data<T>(),
                                             want.data<T>());
              });
              kbtest::Options o;
              o.accumulate = add;
              kbtest::run(kernel_table<GroupedLinear>(), {default_attr("used", int64_t(0)), default_attr("tw", tw)},
                          {&x, &w, &off}, y, o);
              ASSERT_LT(kbtest::relative_error(y[0], want), tolerance(dtype)) << in << " -> " << out << " tw " << tw;
            }
}

TEST(GroupedLinear, SharesLongSegmentsOverTheTeamWithEqualBits) {
  const Array x = normal(KB_F32, {1000, 64}, 1), w = normal(KB_F32, {3, 200, 64}, 2),
              off = array(KB_I32, {4}, {0, 1, 1, 990});
  std::vector<Array> y{array(KB_F32, {1000, 200})}, z = y;
  Array want = y[0];
  reference::grouped_linear<float>(1000, 64, 200, 3, off.data<int32_t>(), true, false, x.data<float>(), w.data<float>(),
                                   want.data<float>());
  const std::vector<kb_attr> attrs{default_attr("used", int64_t(0)), default_attr("tw", true)};
  kbtest::Options one;
  one.threads = 1;
  kbtest::run(kernel_table<GroupedLinear>(), attrs, {&x, &w, &off}, y);
  kbtest::run(kernel_table<GroupedLinear>(), attrs, {&x, &w, &off}, z, one);
  EXPECT_LT(kbtest::relative_error(y[0], want), 2e-6);
  EXPECT_EQ(y[0].bytes, z[0].bytes);
}

TEST(GroupedLinear, NamesTheExpertWhoseRowsLieOutside) {
  const Array x = normal(KB_F32, {8, 4}, 1), w = normal(KB_F32, {2, 3, 4}, 2), off = array(KB_I32, {3}, {0, 4, 9});
  std::vector<Array> y{array(KB_F32, {8, 3})};
  try {
    kbtest::run(kernel_table<GroupedLinear>(), {default_attr("used", int64_t(0)), default_attr("tw", true)},
                {&x, &w, &off}, y);
    FAIL() << "rows outside were accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("rows of expert 1 must lie in [0, 8)"), std::string::npos) << e.what();
  }
}

TEST(GroupedOuter, EqualsThePlainLoopsAndClearsEmptyExperts) {
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (const auto& border : kOffsets)
      for (int64_t o : {1, 17, 130})
        for (int64_t i : {1, 5, 64})
          for (bool add : {false, true}) {
            const Array a = normal(dtype, {64, o}, 1), b = normal(dtype, {64, i}, 2), off = array(KB_I32, {5}, border);
            std::vector<Array> y{normal(dtype, {4, o, i}, 3)};
            Array want = y[0];
            floats(dtype, [&]<class T>() {
              reference::grouped_outer<T>(o, i, 4, off.data<int32_t>(), add, a.data<T>(), b.data<T>(), want.data<T>());
            });
            kbtest::Options opt;
            opt.accumulate = add;
            kbtest::run(kernel_table<GroupedOuter>(),
                        {default_attr("experts", int64_t(4)), default_attr("used", int64_t(0))}, {&a, &b, &off}, y,
                        opt);
            ASSERT_LT(kbtest::relative_error(y[0], want), tolerance(dtype)) << o << "x" << i;
          }
}

TEST(GroupedOuter, AddsUpSegmentsLongerThanABlock) {
  const Array a = normal(KB_F64, {700, 20}, 1), b = normal(KB_F64, {700, 30}, 2),
              off = array(KB_I32, {3}, {0, 600, 700});
  std::vector<Array> y{array(KB_F64, {2, 20, 30})};
  Array want = y[0];
  reference::grouped_outer<double>(20, 30, 2, off.data<int32_t>(), false, a.data<double>(), b.data<double>(),
                                   want.data<double>());
  kbtest::run(kernel_table<GroupedOuter>(), {default_attr("experts", int64_t(2)), default_attr("used", int64_t(0))},
              {&a, &b, &off}, y);
  EXPECT_LT(kbtest::relative_error(y[0], want), 1e-12);
}

}  // namespace
}  // namespace kb::cpu
