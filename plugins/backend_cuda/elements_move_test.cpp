// Kernels that move elements, rows, topk, sources: every bit must be right.
#include <numeric>

#include "elements_test.h"
#include "move_kernels.h"
#include "plugins/backend_cpu/philox.h"
#include "rows_kernels.h"
#include "sources_kernels.h"

using namespace elements_test;
using namespace kb::cuda::element;

namespace {

const uint32_t kAll[] = {KB_U8, KB_I32, KB_I64, KB_BF16, KB_F32};

// The bytes of element i.
std::string bytes_of(const Array& a, int64_t i) {
  const size_t w = Array::width(a.type.dtype);
  return std::string(a.bytes.data() + size_t(i) * w, w);
}
void put_bytes(Array& a, int64_t i, const std::string& b) {
  std::copy(b.begin(), b.end(), a.bytes.begin() + std::ptrdiff_t(size_t(i) * b.size()));
}

TEST(CudaPermute, AgreesWithTheReferenceForEveryOrder) {
  KB_NEEDS_DEVICE();
  const kb::Shape shapes[] = {{5, 3},     {65, 17},   {128, 100},   {1, 7},         {3, 5, 7},      {17, 1, 33},
                              {4, 64, 8}, {4, 65, 3}, {2, 3, 4, 5}, {3, 17, 2, 18}, {2, 40, 3, 16}, {0, 3}};
  for (uint32_t dtype : kAll)
    for (const kb::Shape& s : shapes) {
      std::vector<int64_t> axes(static_cast<size_t>(s.n));
      std::iota(axes.begin(), axes.end(), 0);
      do {
        kb::Shape order, t;
        for (int64_t a : axes) order.at[order.n++] = a, t.at[t.n++] = s.at[a];
        const Array x = counted(dtype, s);
        std::vector<Array> y{array(dtype, t)};
        Array place = array(KB_I64, s), places = array(KB_I64, t), want = y[0];
        for (int64_t i = 0; i < place.size(); ++i) place.set(i, double(i));
        reference::permute(place, order, places);
        for (int64_t i = 0; i < want.size(); ++i) put_bytes(want, i, bytes_of(x, int64_t(places.at(i))));
        run_device(kb::kernel_table<PermuteKernel>(), {kb::Attr("axes", order)}, {&x}, y);
        ASSERT_EQ(y[0].bytes, want.bytes);
      } while (std::next_permutation(axes.begin(), axes.end()));
    }
}

TEST(CudaSlice, AndUnsliceAndConcatAreInverseOnEveryAxis) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : kAll)
    for (const kb::Shape& s :
         {kb::Shape{1000}, kb::Shape{17, 9}, kb::Shape{5, 6, 7}, kb::Shape{30, 40}, kb::Shape{6, 96, 64}})
      for (int axis = 0; axis < s.n; ++axis) {
        const int64_t width = s.at[axis], cut = width / 3;
        const Array x = counted(dtype, s);
        kb::Shape a = s, b = s;
        a.at[axis] = cut, b.at[axis] = width - cut;
        std::vector<Array> left{array(dtype, a)}, right{array(dtype, b)}, whole{array(dtype, s)},
            padded{array(dtype, s)};
        run_device(kb::kernel_table<SliceKernel>(),
                   {kb::Attr("axis", axis), kb::Attr("begin", 0), kb::Attr("end", cut)}, {&x}, left);
        run_device(kb::kernel_table<SliceKernel>(),
                   {kb::Attr("axis", axis - s.n), kb::Attr("begin", cut), kb::Attr("end", width)}, {&x}, right);
        run_device(kb::kernel_table<ConcatKernel>(), {kb::Attr("axis", axis)}, {&left[0], &right[0]}, whole);
        expect_bytes(whole[0], x);
        run_device(kb::kernel_table<UnsliceKernel>(),
                   {kb::Attr("axis", axis), kb::Attr("begin", cut), kb::Attr("size", width)}, {&right[0]}, padded);
        Array want = x;
        int64_t inner = 1;
        for (int d = axis + 1; d < s.n; ++d) inner *= s.at[d];
        for (int64_t i = 0; i < x.size(); ++i)
          if (i / inner % width < cut) put_bytes(want, i, std::string(Array::width(dtype), '\0'));
        ASSERT_EQ(padded[0].bytes, want.bytes);
      }
}

TEST(CudaBroadcast, AgreesWithTheReference) {
  KB_NEEDS_DEVICE();
  struct Case {
    kb::Shape x, y;
  };
  for (const Case& k : {Case{{}, {3, 4}}, Case{{1}, {40000}}, Case{{4}, {3, 4}}, Case{{3, 1}, {3, 65}},
                        Case{{2, 1, 5}, {2, 3, 5}}, Case{{2, 1, 64}, {2, 3, 64}}, Case{{4, 1}, {3, 4, 7}},
                        Case{{3, 4}, {3, 4}}, Case{{1, 1}, {1, 1}}, Case{{1, 8}, {0, 8}}})
    for (uint32_t dtype : kAll) {
      const Array x = counted(dtype, k.x);
      std::vector<Array> y{array(dtype, k.y)};
      Array want = y[0];
      for (int64_t i = 0; i < want.size(); ++i)
        put_bytes(want, i, bytes_of(x, reference::map_index(i, y[0].type, x.type)));
      run_device(kb::kernel_table<BroadcastKernel>(), {kb::Attr("shape", k.y)}, {&x}, y);
      ASSERT_EQ(y[0].bytes, want.bytes);
    }
}

TEST(CudaCopies, KeepEveryBitOfAnyType) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : kAll) {
    const Array x = counted(dtype, {3, 4});
    std::vector<Array> y{array(dtype, {6, 2})};
    run_device(kb::kernel_table<ReshapeKernel>(), {kb::Attr("shape", kb::Shape{6, 2})}, {&x}, y);
    EXPECT_EQ(y[0].bytes, x.bytes);
    run_device(kb::kernel_table<CopyKernel>(), {}, {&x}, y);
    EXPECT_EQ(y[0].bytes, x.bytes);
    run_device(kb::kernel_table<DetachKernel>(), {}, {&x}, y);
    EXPECT_EQ(y[0].bytes, x.bytes);
    run_device(kb::kernel_table<AllReduceKernel>(), {kb::Attr("how", "sum"), kb::Attr("over", "tokens")}, {&x}, y);
    EXPECT_EQ(y[0].bytes, x.bytes);
  }
}

TEST(CudaGather, ReadsRowsZerosForMinusOneAndNaNForWrongRows) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : kAll)
    for (int64_t w : {1, 2, 3, 8, 17, 64, 65, 1000}) {
      const Array x = counted(dtype, {11, w}), rows = numbers_below({40}, -1, 11, 2);
      std::vector<Array> y{array(dtype, {40, w})};
      Array want = y[0];
      for (int64_t i = 0; i < want.size(); ++i)
        if (rows.at(i / w) >= 0) put_bytes(want, i, bytes_of(x, int64_t(rows.at(i / w)) * w + i % w));
      run_device(kb::kernel_table<GatherKernel>(), {}, {&x, &rows}, y);
      ASSERT_EQ(y[0].bytes, want.bytes);
    }
  const Array x = normal(KB_F32, {4, 2}, 1), rows = array(KB_I32, {3}, {0, 3, 4});
  std::vector<Array> y{array(KB_F32, {3, 2})};
  run_device(kb::kernel_table<GatherKernel>(), {}, {&x, &rows}, y);
  EXPECT_EQ(y[0].at(3), x.at(7));
  EXPECT_TRUE(std::isnan(y[0].at(4)));
}

TEST(CudaGather, LeavesRowsPastTheExtentAlone) {
  KB_NEEDS_DEVICE();
  const Array x = normal(KB_F32, {4, 8}, 1);
  Array rows = array(KB_I32, {6}, {0, 1, 3, 0, 0, 0});
  rows.type.extent = 1;
  std::vector<Array> y{array(KB_F32, {6, 8})};
  y[0].type.extent = 1;
  run_device(kb::kernel_table<GatherKernel>(), {}, {&x, &rows}, y, {{0, 3}});
  EXPECT_EQ(y[0].at(2 * 8), x.at(3 * 8));
  EXPECT_EQ(y[0].at(3 * 8), 0);
}

TEST(CudaScatterAdd, AddsRowsInTheirOrder) {
  KB_NEEDS_DEVICE();
  for (int64_t m : {0, 1, 200, 5000})
    for (int64_t n : {7, 300})
      for (int64_t w : {1, 2, 3, 8, 17, 64, 65, 1000}) {
        if (m > 200 && w > 64) continue;
        const Array x = normal(KB_F32, {m, w}, 1), rows = numbers_below({m}, -1, int(n), 2);
        Array want = array(KB_F32, {n, w});
        for (int64_t r = 0; r < m; ++r)
          for (int64_t i = 0; i < w && rows.at(r) >= 0; ++i)
            want.data<float>()[int64_t(rows.at(r)) * w + i] += x.data<float>()[r * w + i];
        std::vector<Array> y{array(KB_F32, {n, w})};
        run_device(kb::kernel_table<ScatterAddKernel>(), {kb::Attr("rows", n)}, {&x, &rows}, y);
        ASSERT_LE(error("scatter_add", y[0], want), 2e-6) << m << " " << n << " " << w;
        std::vector<Array> again{y[0]}, twice{want};
        run_device(kb::kernel_table<ScatterAddKernel>(), {kb::Attr("rows", n)}, {&x, &rows}, again);
        ASSERT_EQ(again[0].bytes, y[0].bytes);
        run_device(kb::kernel_table<ScatterAddKernel>(), {kb::Attr("rows", n)}, {&x, &rows}, twice, {{}, 1});
        for (int64_t i = 0; i < want.size(); ++i) ASSERT_NEAR(twice[0].at(i), 2 * want.at(i), 2e-4);
      }
  const Array x = normal(KB_BF16, {900, 24}, 1), rows = numbers_below({900}, -1, 5, 2);
  std::vector<Array> y{array(KB_BF16, {5, 24})};
  Array want = y[0], sum = array(KB_F64, {5, 24});
  for (int64_t i = 0; i < x.size(); ++i)
    if (rows.at(i / 24) >= 0) {
      const int64_t at = int64_t(rows.at(i / 24)) * 24 + i % 24;
      sum.set(at, sum.at(at) + x.at(i));
    }
  run_device(kb::kernel_table<ScatterAddKernel>(), {kb::Attr("rows", 5)}, {&x, &rows}, y);
  EXPECT_LE(error("scatter_add", y[0], sum), tolerance(KB_BF16));
}

TEST(CudaScatterAdd, SkipsRowsPastTheExtentAndShowsWrongOnes) {
  KB_NEEDS_DEVICE();
  Array x = normal(KB_F32, {6, 2}, 1), rows = array(KB_I32, {6}, {0, 1, 0, 99, 99, 99});
  x.type.extent = rows.type.extent = 1;
  std::vector<Array> y{array(KB_F32, {2, 2})};
  run_device(kb::kernel_table<ScatterAddKernel>(), {kb::Attr("rows", 2)}, {&x, &rows}, y, {{0, 3}});
  EXPECT_NEAR(y[0].at(0), x.at(0) + x.at(4), 1e-6);
  run_device(kb::kernel_table<ScatterAddKernel>(), {kb::Attr("rows", 2)}, {&x, &rows}, y, {{0, 4}});
  EXPECT_TRUE(std::isnan(y[0].at(0)));
}

TEST(CudaTake, AndUntakeAreTransposed) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : kAll) {
    const Array x = counted(dtype, {9, 13});
    Array ids = array(KB_I32, {9, 4});
    for (int64_t r = 0; r < 9; ++r)
      for (int64_t j = 0; j < 4; ++j) ids.set(r * 4 + j, double((r + 3 * j) % 13));
    std::vector<Array> y{array(dtype, {9, 4})}, back{array(dtype, {9, 13})};
    Array want = array(dtype, {9, 13});
    run_device(kb::kernel_table<TakeKernel>(), {}, {&x, &ids}, y);
    run_device(kb::kernel_table<UntakeKernel>(), {kb::Attr("width", 13)}, {&y[0], &ids}, back);
    for (int64_t i = 0; i < 36; ++i) {
      const int64_t at = i / 4 * 13 + int64_t(ids.at(i));
      ASSERT_EQ(bytes_of(y[0], i), bytes_of(x, at));
      put_bytes(want, at, bytes_of(x, at));
    }
    ASSERT_EQ(back[0].bytes, want.bytes);
  }
}

TEST(CudaTopk, AgreesWithAStableSortForTiesInfinitiesAndNaN) {
  KB_NEEDS_DEVICE();
  std::mt19937_64 r(4);
  for (uint32_t dtype : kTypes)
    for (int64_t n : {1, 2, 3, 17, 64, 65, 256, 257, 896, 1000, 1024, 1025, 4096})
      for (int64_t k : {1, 2, 8, 16, 32, 64}) {
        if (k > n) continue;
        for (int kind = 0; kind < 4; ++kind) {  // plain; many ties; infinities and NaN; mostly NaN
          Array x = normal(dtype, {9, n}, r());
          for (int64_t i = 0; i < x.size(); ++i) {
            const uint64_t u = r() % 8;
            if (kind == 1) x.set(i, double(u % 4) - 1);
            if (kind == 2 && u < 4) x.set(i, u == 0 ? NAN : u == 1 ? INFINITY : -INFINITY);
            if (kind == 3 && u < 7) x.set(i, NAN);
          }
          std::vector<Array> y{array(dtype, {9, k}), array(KB_I32, {9, k})};
          std::vector<Array> want = y;
          reference::topk(x, k, want[0], want[1]);
          run_device(kb::kernel_table<TopkKernel>(), {kb::Attr("k", k)}, {&x}, y);
          ASSERT_EQ(y[1].bytes, want[1].bytes) << n << " " << k << " " << kind;
          for (int64_t i = 0; i < y[0].size(); ++i)
            ASSERT_TRUE(y[0].at(i) == want[0].at(i) || std::isnan(want[0].at(i)));
        }
      }
  const Array x = array(KB_F32, {1, 4}, {1, 3, 3, 2});
  for (uint64_t unwanted : {1, 2}) {
    std::vector<Array> y{array(KB_F32, {1, 2}), array(KB_I32, {1, 2})};
    run_device(kb::kernel_table<TopkKernel>(), {kb::Attr("k", 2)}, {&x}, y, {{}, 0, unwanted});
    if (unwanted == 1) {
      EXPECT_EQ(y[1].at(1), 2);
    } else {
      EXPECT_EQ(y[0].at(1), 3);
    }
  }
}

TEST(CudaSources, WriteTheirNumbers) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : kAll)
    for (int64_t n : {0, 1, 3, 8, 17, 1000}) {
      std::vector<Array> y{array(dtype, {n})};
      run_device(kb::kernel_table<FillKernel>(),
                 {kb::Attr("shape", kb::Shape{n}), kb::Attr("value", 3.0), kb::Attr("dtype", int64_t(dtype))}, {}, y);
      for (int64_t i = 0; i < n; ++i) ASSERT_EQ(y[0].at(i), 3);
    }
  std::vector<double> v;
  for (int i = 0; i < 600; ++i) v.push_back(0.5 * i - 7);
  std::vector<Array> f{array(KB_F32, {600})}, b{array(KB_BF16, {600})}, i32{array(KB_I32, {700})},
      inf{array(KB_F32, {3})};
  run_device(kb::kernel_table<VectorKernel>(), {kb::Attr("values", v), kb::Attr("dtype", KB_F32)}, {}, f);
  run_device(kb::kernel_table<VectorKernel>(), {kb::Attr("values", v), kb::Attr("dtype", KB_BF16)}, {}, b);
  run_device(kb::kernel_table<IotaKernel>(), {kb::Attr("n", 700)}, {}, i32);
  run_device(kb::kernel_table<FillKernel>(),
             {kb::Attr("shape", kb::Shape{3}), kb::Attr("value", double(-INFINITY)), kb::Attr("dtype", KB_F32)}, {},
             inf);
  for (int64_t i = 0; i < 600; ++i) {
    ASSERT_EQ(f[0].at(i), v[size_t(i)]);
    ASSERT_NEAR(b[0].at(i), v[size_t(i)], 4e-3 * std::fabs(v[size_t(i)]));
    ASSERT_EQ(i32[0].at(i), double(i));
  }
  EXPECT_EQ(inf[0].at(2), -INFINITY);
}

TEST(CudaRandom, DrawsTheNumbersOfTheCpu) {
  KB_NEEDS_DEVICE();
  const int64_t n = 100001, seed = 0x123456789abcdef;
  for (uint32_t dtype : kTypes) {
    std::vector<Array> a{array(dtype, {n})}, u{array(dtype, {n})};
    run_device(kb::kernel_table<NormalKernel>(),
               {kb::Attr("shape", kb::Shape{n}), kb::Attr("std", 2.0), kb::Attr("seed", seed),
                kb::Attr("dtype", int64_t(dtype))},
               {}, a);
    run_device(kb::kernel_table<UniformKernel>(),
               {kb::Attr("shape", kb::Shape{n}), kb::Attr("lo", 1.0), kb::Attr("hi", 1.5), kb::Attr("seed", seed),
                kb::Attr("dtype", int64_t(dtype))},
               {}, u);
    int64_t other = 0;
    for (int64_t i = 0; i < n; ++i) {
      const auto g = kb::cpu::normal_pair(uint64_t(seed), uint64_t(i / 2)),
                 v = kb::cpu::uniform_pair(uint64_t(seed), uint64_t(i / 2));
      Array want = array(dtype, {2}, {2 * (i % 2 ? g.b : g.a), 1 + 0.5 * (i % 2 ? v.b : v.a)});
      ASSERT_NEAR(a[0].at(i), want.at(0), (dtype == KB_F32 ? 1.2e-7 : 8e-3) * std::fabs(want.at(0)) + 1e-15) << i;
      other += a[0].at(i) != want.at(0);
      if (want.at(1) < 1.5) {
        ASSERT_NEAR(u[0].at(i), want.at(1), dtype == KB_F32 ? 0 : 8e-3) << i;
      }
      if (dtype == KB_F32) {
        ASSERT_LT(u[0].at(i), 1.5);
      }
    }
    EXPECT_LE(other, n / 1000);  // double arithmetic on both sides: almost never another rounding
  }
}

}  // namespace
