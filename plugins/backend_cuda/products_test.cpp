// Products and expert plumbing on the device against the plain loops of the CPU backend, in f32 and in bf16. Tolerances on
// the norm of the error: f32 2e-6, sums in fp32 of a few hundred terms; bf16 4e-3, what rounding a result once to 8 bits may cost.
#define KBTEST_CUBLASLT
#include <gtest/gtest.h>

#include "experts.h"
#include "grouped.h"
#include "matmul.h"
#include "plugins/backend_cpu/elements_reference.h"
#include "plugins/backend_cpu/reference.h"
#include "tests/support/device_call.h"

namespace kb::cuda {
namespace {
using kbtest::Array;
using kbtest::array;
using kbtest::normal;
using kbtest::run_device;
namespace reference = cpu::reference;

double tolerance(uint32_t dtype) { return dtype == KB_BF16 ? 4e-3 : 2e-6; }
std::vector<float> floats_of(const Array& a) {
  std::vector<float> v(size_t(a.size()));
  for (int64_t i = 0; i < a.size(); ++i) v[size_t(i)] = float(a.at(i));
  return v;
}
double error_of(const Array& got, const std::vector<float>& want) {
  Array w = array(KB_F32, {int64_t(want.size())});
  std::copy(want.begin(), want.end(), w.data<float>());
  return kbtest::relative_error(got, w);
}
const std::vector<kb_attr> flags(bool ta, bool tb) { return {default_attr("ta", ta), default_attr("tb", tb)}; }

double matmul_error(uint32_t dtype, int64_t batch, int64_t m, int64_t n, int64_t k, bool ta, bool tb, bool b_batched,
                    bool add, uint32_t to = KB_NONE) {
  const bool deep = batch > 1;
  const auto shape = [&](int64_t r, int64_t c, bool with) { return with ? Shape{batch, r, c} : Shape{r, c}; };
  const Array a = normal(dtype, shape(ta ? k : m, ta ? m : k, deep), 1),
              b = normal(dtype, shape(tb ? n : k, tb ? k : n, b_batched), 2);
  std::vector<Array> out{normal(to ? to : dtype, shape(m, n, deep), 3)};
  std::vector<float> want = floats_of(out[0]);
  reference::matmul<float>(batch, m, n, k, ta, tb, b_batched, add, floats_of(a).data(), floats_of(b).data(),
                           want.data());
  kbtest::Options o;
  o.accumulate = add;
  run_device(kernel_table<Matmul>(), flags(ta, tb), {&a, &b}, out, o);
  return error_of(out[0], want);
}

TEST(CudaMatmul, EqualsThePlainLoopsOverOddSizes) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : {KB_F32, KB_BF16})
    for (int64_t m : {1, 3, 64, 127})
      for (int64_t n : {1, 5, 65, 128})
        for (int64_t k : {1, 17, 64})
          for (int t = 0; t < 4; ++t)
            ASSERT_LT(matmul_error(dtype, 1, m, n, k, t & 1, t & 2, false, (m + n + k) % 2), tolerance(dtype))
                << dtype_name(dtype) << " " << m << "x" << n << "x" << k << " ta " << (t & 1) << " tb " << (t >> 1);
}

// Results large enough that the algorithm is our choice and not the heuristic's.
TEST(CudaMatmul, EqualsThePlainLoopsForLargeResults) {
  KB_NEEDS_DEVICE();
  for (int t = 0; t < 8; ++t)
    EXPECT_LT(matmul_error(KB_BF16, 1, 8000, 1032, 40, t & 1, t & 2, false, t & 4), tolerance(KB_BF16)) << t;
}

TEST(CudaMatmul, SumsLongInnerWidthsInFp32) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : {KB_F32, KB_BF16})
    for (int t = 0; t < 4; ++t)
      EXPECT_LT(matmul_error(dtype, 1, 40, 24, 9000, t & 1, t & 2, false, t == 1), dtype == KB_F32 ? 5e-6 : 4e-3);
}

TEST(CudaMatmul, TakesBatchesWithOneOrManyRightSides) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : {KB_F32, KB_BF16})
    for (int64_t m : {2, 19})
      for (int t = 0; t < 8; ++t) {
        if ((t & 1) && !(t & 4)) continue;  // the op refuses a transposed a with one b
        EXPECT_LT(matmul_error(dtype, 5, m, 33, 21, t & 1, t & 2, t & 4, t % 3 == 0), tolerance(dtype))
            << t << " m " << m;
      }
}

TEST(CudaMatmul, AddsBf16ProductsToFp32Sums) {
  KB_NEEDS_DEVICE();
  for (int t = 0; t < 8; ++t)
    EXPECT_LT(matmul_error(KB_BF16, 1, 72, 40, 104, t & 1, t & 2, false, t & 4, KB_F32), 2e-6) << t;
}

// bf16 with f32, as accurate as if both were f32: the bf16 operand alone is rounded, and that is done before the reference, whose
// own sums of 1,000 floats are off by 1e-6.
TEST(CudaMatmulMixed, EqualsThePlainLoopsInFp32) {
  KB_NEEDS_DEVICE();
  for (const bool forward : {true, false})
    for (const bool add : {false, true})
      for (int64_t m : {1, 3, 64, 130})
        for (int64_t n : {1, 5, 64, 129})
          for (int64_t k : {1, 17, 64, 1000}) {
            const Array a = normal(forward ? KB_BF16 : KB_F32, forward ? Shape{m, k} : Shape{k, m}, 1),
                        b = normal(forward ? KB_F32 : KB_BF16, forward ? Shape{n, k} : Shape{k, n}, 2, 1e-3);
            std::vector<Array> out{normal(KB_F32, {m, n}, 3)};
            std::vector<float> want = floats_of(out[0]);
            reference::matmul<float>(1, m, n, k, !forward, forward, false, add, floats_of(a).data(),
                                     floats_of(b).data(), want.data());
            kbtest::Options o;
            o.accumulate = add;
            run_device(kernel_table<MatmulMixed>(), flags(!forward, forward), {&a, &b}, out, o);
            ASSERT_LT(error_of(out[0], want), 5e-6) << m << "x" << n << "x" << k << (forward ? "" : " of a weight");
          }
}
TEST(CudaMatmulMixed, KeepsInfinityAndNaN) {
  KB_NEEDS_DEVICE();
  Array a = array(KB_BF16, {3, 2}, {1, 1, 1, 1, 1, 1}), b = array(KB_F32, {3, 2}, {INFINITY, 1, NAN, 1, 3e38, 1});
  std::vector<Array> out{array(KB_F32, {3, 3})};
  run_device(kernel_table<MatmulMixed>(), flags(false, true), {&a, &b}, out);
  EXPECT_EQ(out[0].at(0), INFINITY);
  EXPECT_TRUE(std::isnan(out[0].at(1)));
  EXPECT_NEAR(out[0].at(2), 3e38, 1e32);
}
TEST(CudaMatmulMixed, DeclinesOtherLayoutsInASentence) {
  KB_NEEDS_DEVICE();
  const Array a = array(KB_BF16, {4, 4}), b = array(KB_F32, {4, 4});
  std::vector<Array> out{b};
  try {
    run_device(kernel_table<MatmulMixed>(), flags(false, false), {&a, &b}, out);
    FAIL() << "was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("but got bf16 with f32"), std::string::npos) << e.what();
  }
}

TEST(CudaMatmul, NothingInUseGivesZerosOrLeavesTheSum) {
  KB_NEEDS_DEVICE();
  const Array a = array(KB_BF16, {0, 8}), b = array(KB_BF16, {0, 5});
  std::vector<Array> out{normal(KB_BF16, {8, 5}, 3)};
  const Array before = out[0];
  kbtest::Options add;
  add.accumulate = 1;
  run_device(kernel_table<Matmul>(), flags(true, false), {&a, &b}, out, add);
  EXPECT_EQ(out[0].bytes, before.bytes);
  run_device(kernel_table<Matmul>(), flags(true, false), {&a, &b}, out);
  for (int64_t i = 0; i < out[0].size(); ++i) EXPECT_EQ(out[0].at(i), 0);
  std::vector<Array> none{array(KB_BF16, {0, 5})};
  const Array w = normal(KB_BF16, {8, 5}, 1);
  run_device(kernel_table<Matmul>(), flags(false, false), {&a, &w}, none);
}

TEST(CudaMatmul, DeclinesDoublesInASentence) {
  KB_NEEDS_DEVICE();
  const Array a = array(KB_F64, {4, 4}), b = a;
  std::vector<Array> out{a};
  try {
    run_device(kernel_table<Matmul>(), flags(false, false), {&a, &b}, out);
    FAIL() << "f64 was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("must be f32 or bf16 on CUDA but got f64"), std::string::npos) << e.what();
  }
}

// ---- experts
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
  run_device(kernel_table<ExpertSortKernel>(), {Attr("experts", experts), Attr("tile", tile)}, {&x.ids}, y);
  x.source = y[0], x.offsets = y[1];
  return x;
}

TEST(CudaExpertSort, IsStablePaddedAndFitsItsBound) {
  KB_NEEDS_DEVICE();
  for (int64_t tokens : {1, 17, 170, 171, 1000, 30000})
    for (int64_t experts : {1, 5, 64, 300})
      for (int64_t tile : {1, 16, 128}) {
        const Routed r = route(tokens, 3, experts, tile, 5);
        Array source = r.source, offsets = r.offsets;
        cpu::reference::expert_sort(r.ids, experts, tile, source, offsets);
        ASSERT_EQ(r.source.bytes, source.bytes) << tokens << " tokens, " << experts << " experts, tile " << tile;
        ASSERT_EQ(r.offsets.bytes, offsets.bytes) << tokens << " tokens, " << experts << " experts, tile " << tile;
      }
}

TEST(CudaExpertSort, LeavesOutTokensPastTheExtentAndWrongExperts) {
  KB_NEEDS_DEVICE();
  for (int64_t tokens : {4, 4000}) {  // one launch, three launches
    Array ids = array(KB_I32, {tokens, 2}, {0, 1, 1, 2, 9, -1, 0, 0});
    ids.type.extent = 1;
    const std::vector<kb_attr> attrs = {Attr("experts", 3), Attr("tile", 1)};
    std::vector<Array> y{array(KB_I32, {tokens * 2}), array(KB_I32, {4})};
    kbtest::Options o;
    o.extents = {0, 3};
    run_device(kernel_table<ExpertSortKernel>(), attrs, {&ids}, y, o);
    const std::vector<double> want{0, 1, 2, 3, -1};
    for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(y[0].at(int64_t(i)), want[i]);
    EXPECT_EQ(y[1].at(1), 1);
    EXPECT_EQ(y[1].at(2), 3);
    EXPECT_EQ(y[1].at(3), 4);
  }
}

TEST(CudaDispatch, AndCombineAgreeWithTheReference) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : {KB_F32, KB_BF16})
    for (int64_t w : {1, 2, 3, 17, 64, 65, 512, 1000, 3000})
      for (int64_t k : {1, 3, 9}) {
        const int64_t tokens = 37;
        const Routed r = route(tokens, k, 11, 4, 6);
        const int64_t rows = r.source.size();
        const Array x = normal(dtype, {tokens, w}, 1), e = normal(dtype, {rows, w}, 2);
        std::vector<Array> sent{array(dtype, {rows, w})}, got{array(dtype, {tokens, w})};
        run_device(kernel_table<DispatchKernel>(), {Attr("active", k)}, {&x, &r.source}, sent);
        run_device(kernel_table<CombineKernel>(), {Attr("tokens", tokens), Attr("active", k)}, {&e, &r.source}, got);
        std::vector<float> want(size_t(tokens * w), 0.f);
        std::vector<int64_t> row_of(size_t(tokens * k), -1);
        for (int64_t i = 0; i < rows; ++i)
          if (r.source.at(i) >= 0) row_of[size_t(r.source.at(i))] = i;
        for (int64_t c = 0; c < tokens * k; ++c)
          for (int64_t i = 0; i < w; ++i) want[size_t(c / k * w + i)] += float(e.at(row_of[size_t(c)] * w + i));
        for (int64_t i = 0; i < rows * w; ++i) {
          const int64_t s = int64_t(r.source.at(i / w));
          ASSERT_EQ(sent[0].at(i), s < 0 ? 0 : x.at(s / k * w + i % w));
        }
        Array exact = got[0];
        for (int64_t i = 0; i < exact.size(); ++i) exact.set(i, want[size_t(i)]);
        ASSERT_EQ(got[0].bytes, exact.bytes) << "width " << w << " active " << k;
      }
}

TEST(CudaCombine, GivesZeroToATokenWithoutRows) {
  KB_NEEDS_DEVICE();
  const Array e = normal(KB_F32, {3, 5}, 1), source = array(KB_I32, {3}, {2, -1, 3});
  std::vector<Array> y{array(KB_F32, {3, 5})};
  run_device(kernel_table<CombineKernel>(), {Attr("tokens", 3), Attr("active", 2)}, {&e, &source}, y);
  EXPECT_EQ(y[0].at(0), 0);
  EXPECT_EQ(y[0].data<float>()[5], e.data<float>()[0] + e.data<float>()[10]);
  EXPECT_EQ(y[0].at(10), 0);
}

// ---- grouped products
template <class K>
double linear_error(uint32_t dtype, int64_t rows, int64_t in, int64_t out, const std::vector<double>& border, bool tw,
                    bool add) {
  const auto experts = int64_t(border.size()) - 1;
  const Array x = normal(dtype, {rows, in}, 1), off = array(KB_I32, {experts + 1}, border);
  const Array w = normal(dtype, tw ? Shape{experts, out, in} : Shape{experts, in, out}, 2);
  std::vector<Array> y{normal(dtype, {rows, out}, 3)};
  std::vector<float> want = floats_of(y[0]);
  reference::grouped_linear<float>(rows, in, out, experts, off.data<int32_t>(), tw, add, floats_of(x).data(),
                                   floats_of(w).data(), want.data());
  kbtest::Options o;
  o.accumulate = add;
  run_device(kernel_table<K>(), {default_attr("used", int64_t(0)), default_attr("tw", tw)}, {&x, &w, &off}, y, o);
  return error_of(y[0], want);
}
template <class K>
double outer_error(uint32_t dtype, int64_t rows, int64_t o, int64_t i, const std::vector<double>& border, bool add,
                   uint32_t to = KB_NONE) {
  const auto experts = int64_t(border.size()) - 1;
  const Array a = normal(dtype, {rows, o}, 1), b = normal(dtype, {rows, i}, 2),
              off = array(KB_I32, {experts + 1}, border);
  std::vector<Array> y{normal(to ? to : dtype, {experts, o, i}, 3)};
  std::vector<float> want = floats_of(y[0]);
  reference::grouped_outer<float>(o, i, experts, off.data<int32_t>(), add, floats_of(a).data(), floats_of(b).data(),
                                  want.data());
  kbtest::Options opt;
  opt.accumulate = add;
  run_device(kernel_table<K>(), {default_attr("experts", experts), default_attr("used", int64_t(0))}, {&a, &b, &off}, y,
             opt);
  return error_of(y[0], want);
}

const std::vector<std::vector<double>> kOffsets{{0, 3, 3, 40, 41}, {0, 0, 0, 0, 0}, {0, 64, 64, 64, 64},
                                                {0, 0, 0, 0, 64},  {0, 1, 2, 3, 4}, {5, 17, 34, 50, 64}};

TEST(CudaGroupedSimt, LinearEqualsThePlainLoopsForAnySegments) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : {KB_F32, KB_BF16})
    for (const auto& border : kOffsets)
      for (int64_t in : {1, 65})
        for (int64_t out : {3, 127})
          for (int t = 0; t < 4; ++t)
            ASSERT_LT(linear_error<GroupedLinearSimt>(dtype, 64, in, out, border, t & 1, t & 2), tolerance(dtype))
                << in << " -> " << out << " tw " << (t & 1);
  ASSERT_LT(linear_error<GroupedLinearSimt>(KB_F32, 1000, 64, 200, {0, 1, 1, 990}, true, false), 2e-6);
}

TEST(CudaGroupedSimt, OuterEqualsThePlainLoopsAndClearsEmptyExperts) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : {KB_F32, KB_BF16})
    for (const auto& border : kOffsets)
      for (int64_t o : {1, 130})
        for (int64_t i : {5, 64})
          for (bool add : {false, true})
            ASSERT_LT(outer_error<GroupedOuterSimt>(dtype, 64, o, i, border, add), tolerance(dtype)) << o << "x" << i;
  ASSERT_LT(outer_error<GroupedOuterSimt>(KB_F32, 700, 20, 30, {0, 600, 700}, false), 2e-6);
}

// Borders of `experts` segments: multiples of `step` that sum to about `rows`, some of them empty.
std::vector<double> ragged(int64_t rows, int64_t experts, int64_t step, uint64_t seed) {
  std::mt19937_64 r(seed);
  std::vector<double> at{0};
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t even = rows / experts / step, n = even ? int64_t(r() % uint64_t(2 * even + 1)) : int64_t(r() % 2);
    at.push_back(std::min(double(rows), at.back() + double((e % 5 == 3 ? 0 : n) * step)));
  }
  return at;
}

TEST(CudaGroupedWgmma, LinearEqualsThePlainLoopsForAnySegments) {
  KB_NEEDS_DEVICE();
  for (int64_t in : {8, 64, 136})
    for (int64_t out : {8, 128, 136, 248, 376, 440, 480, 512})
      for (int t = 0; t < 4; ++t) {
        for (int64_t step : {1, 128}) {
          const std::vector<double> border = ragged(600, 3, step, uint64_t(in + out));
          ASSERT_LT(linear_error<GroupedLinearWgmma>(KB_BF16, 640, in, out, border, t & 1, t & 2), 4e-3)
              << in << " -> " << out << " tw " << (t & 1) << " add " << (t >> 1) << " step " << step;
        }
        const auto& border = kOffsets[size_t(out / 8 + t) % kOffsets.size()];
        ASSERT_LT(linear_error<GroupedLinearWgmma>(KB_BF16, 64, in, out, border, t & 1, t & 2), 4e-3)
            << in << " -> " << out << " tw " << (t & 1) << " add " << (t >> 1);
      }
}

TEST(CudaGroupedWgmma, OuterEqualsThePlainLoopsAndClearsEmptyExperts) {
  KB_NEEDS_DEVICE();
  for (int64_t o : {8, 64, 200})
    for (int64_t i : {8, 136, 248, 376, 440, 480, 512})
      for (bool add : {false, true}) {
        for (int64_t step : {1, 128}) {
          const std::vector<double> border = ragged(600, 3, step, uint64_t(o + i));
          ASSERT_LT(outer_error<GroupedOuterWgmma>(KB_BF16, 640, o, i, border, add), 4e-3)
              << o << " x " << i << " add " << add << " step " << step;
        }
        const auto& border = kOffsets[size_t((o + i) / 8) % kOffsets.size()];
        ASSERT_LT(outer_error<GroupedOuterWgmma>(KB_BF16, 64, o, i, border, add), 4e-3) << o << " x " << i;
        ASSERT_LT(outer_error<GroupedOuterWgmma>(KB_BF16, 64, o, i, border, add, KB_F32), 2e-6) << o << " x " << i;
        ASSERT_LT(outer_error<GroupedOuterSimt>(KB_BF16, 64, o, i, border, add, KB_F32), 2e-6) << o << " x " << i;
      }
}

TEST(CudaGroupedWgmma, TakesManyExperts) {
  KB_NEEDS_DEVICE();
  for (int64_t experts : {384, 385, 1000}) {
    const std::vector<double> border = ragged(3000, experts, 1, 4);
    EXPECT_LT(outer_error<GroupedOuterWgmma>(KB_BF16, 3000, 24, 136, border, false), 4e-3) << experts;
    EXPECT_LT(linear_error<GroupedLinearWgmma>(KB_BF16, 3000, 24, 136, border, true, false), 4e-3) << experts;
  }
}

// Many rounds of the persistent grid, against the kernel without tensor cores.
TEST(CudaGroupedWgmma, LargeShapesAgreeWithThePlainKernelAndRepeatTheirBits) {
  KB_NEEDS_DEVICE();
  const int64_t rows = 12288, experts = 37, in = 520, out = 1416;
  for (int64_t step : {1, 128}) {
    const std::vector<double> border = ragged(rows, experts, step, 9);
    const Array x = normal(KB_BF16, {rows, in}, 1), dy = normal(KB_BF16, {rows, out}, 2),
                off = array(KB_I32, {experts + 1}, border);
    for (bool tw : {true, false}) {
      const Array w = normal(KB_BF16, tw ? Shape{experts, out, in} : Shape{experts, in, out}, 3);
      const std::vector<kb_attr> attrs{default_attr("used", rows), default_attr("tw", tw)};
      std::vector<Array> fast{array(KB_BF16, {rows, out})}, again = fast, plain = fast;
      run_device(kernel_table<GroupedLinearWgmma>(), attrs, {&x, &w, &off}, fast);
      run_device(kernel_table<GroupedLinearWgmma>(), attrs, {&x, &w, &off}, again);
      run_device(kernel_table<GroupedLinearSimt>(), attrs, {&x, &w, &off}, plain);
      EXPECT_LT(kbtest::relative_error(fast[0], plain[0]), 1e-3) << "tw " << tw << " step " << step;
      EXPECT_EQ(fast[0].bytes, again[0].bytes);
    }
    const std::vector<kb_attr> attrs{default_attr("experts", experts), default_attr("used", rows)};
    std::vector<Array> fast{array(KB_BF16, {experts, out, in})}, again = fast, plain = fast;
    run_device(kernel_table<GroupedOuterWgmma>(), attrs, {&dy, &x, &off}, fast);
    run_device(kernel_table<GroupedOuterWgmma>(), attrs, {&dy, &x, &off}, again);
    run_device(kernel_table<GroupedOuterSimt>(), attrs, {&dy, &x, &off}, plain);
    EXPECT_LT(kbtest::relative_error(fast[0], plain[0]), 1e-3) << "outer, step " << step;
    EXPECT_EQ(fast[0].bytes, again[0].bytes);
  }
}

// What lies past a segment belongs to others: not even a NaN of theirs gets in.
TEST(CudaGroupedWgmma, ASegmentSeesNoRowOfAnother) {
  KB_NEEDS_DEVICE();
  const int64_t o = 136, i = 264;
  Array a = normal(KB_BF16, {200, o}, 1), b = normal(KB_BF16, {200, i}, 2), off = array(KB_I32, {3}, {0, 70, 70});
  for (int64_t r = 70; r < 200; ++r) {
    for (int64_t k = 0; k < o; ++k) a.set(r * o + k, NAN);
    for (int64_t k = 0; k < i; ++k) b.set(r * i + k, NAN);
  }
  std::vector<Array> y{array(KB_BF16, {2, o, i})};
  std::vector<float> want(size_t(2 * o * i), 0.f);
  reference::grouped_outer<float>(o, i, 2, off.data<int32_t>(), false, floats_of(a).data(), floats_of(b).data(),
                                  want.data());
  run_device(kernel_table<GroupedOuterWgmma>(), {default_attr("experts", int64_t(2)), default_attr("used", int64_t(0))},
             {&a, &b, &off}, y);
  EXPECT_LT(error_of(y[0], want), 4e-3);
}

}  // namespace
}  // namespace kb::cuda
