#include "shape.h"

#include <gtest/gtest.h>

#include "elements_reference.h"

using namespace kb::cpu;
using kbtest::Array;
using kbtest::array;
using kbtest::normal;
using kbtest::run;

namespace {

Array counted(uint32_t dtype, const kb::Shape& s) {
  Array x = array(dtype, s);
  for (int64_t i = 0; i < x.size(); ++i) x.set(i, double(i + 1));
  return x;
}
void expect_equal(const Array& got, const Array& want) {
  for (int64_t i = 0; i < want.size(); ++i) ASSERT_EQ(got.at(i), want.at(i)) << "element " << i;
}

TEST(Permute, AgreesWithTheReferenceForEveryOrder) {
  const kb::Shape shapes[] = {{5, 3},      {65, 17},   {128, 100},   {1, 7},         {7, 1}, {3, 5, 7},
                              {17, 1, 33}, {4, 65, 3}, {2, 3, 4, 5}, {3, 17, 2, 18}, {0, 3}};
  for (uint32_t dtype : {KB_F32, KB_F64, KB_I32})
    for (const kb::Shape& s : shapes) {
      std::vector<int64_t> axes(static_cast<size_t>(s.n));
      std::iota(axes.begin(), axes.end(), 0);
      do {
        kb::Shape order, t;
        for (int64_t a : axes) order.at[order.n++] = a, t.at[t.n++] = s.at[a];
        const Array x = counted(dtype, s);
        std::vector<Array> y{array(dtype, t)};
        Array want = y[0];
        reference::permute(x, order, want);
        run(kb::kernel_table<PermuteKernel>(), {kb::Attr("axes", order)}, {&x}, y);
        expect_equal(y[0], want);
      } while (std::next_permutation(axes.begin(), axes.end()));
    }
}

TEST(Permute, WritesOnlyTheRowsInUse) {
  for (int32_t rows : {0, 1, 2, 3}) {
    Array x = counted(KB_F32, {5, 4, 6});
    std::vector<Array> y{array(KB_F32, {5, 6, 4})};
    y[0].type.extent = 1;
    Array want = y[0];
    const kb::Shape order{0, 2, 1};
    reference::permute(x, order, want);
    run(kb::kernel_table<PermuteKernel>(), {kb::Attr("axes", order)}, {&x}, y, {{0, rows}});
    for (int64_t i = 0; i < y[0].size(); ++i) {
      if (i < rows * 24) {
        EXPECT_EQ(y[0].at(i), want.at(i));
      } else {
        EXPECT_TRUE(std::isnan(y[0].at(i)));
      }
    }
  }
}

TEST(Slice, AndUnsliceAndConcatAreInverseOnEveryAxis) {
  for (const kb::Shape& s : {kb::Shape{1000}, kb::Shape{17, 9}, kb::Shape{5, 6, 7}, kb::Shape{300, 400}})
    for (int axis = 0; axis < s.n; ++axis) {
      const int64_t width = s.at[axis], cut = width / 3;
      const Array x = counted(KB_F32, s);
      kb::Shape a = s, b = s;
      a.at[axis] = cut, b.at[axis] = width - cut;
      std::vector<Array> left{array(KB_F32, a)}, right{array(KB_F32, b)}, whole{array(KB_F32, s)},
          padded{array(KB_F32, s)};
      run(kb::kernel_table<SliceKernel>(), {kb::Attr("axis", axis), kb::Attr("begin", 0), kb::Attr("end", cut)}, {&x},
          left);
      run(kb::kernel_table<SliceKernel>(),
          {kb::Attr("axis", axis - s.n), kb::Attr("begin", cut), kb::Attr("end", width)}, {&x}, right);
      run(kb::kernel_table<ConcatKernel>(), {kb::Attr("axis", axis)}, {&left[0], &right[0]}, whole);
      expect_equal(whole[0], x);
      run(kb::kernel_table<UnsliceKernel>(), {kb::Attr("axis", axis), kb::Attr("begin", cut), kb::Attr("size", width)},
          {&right[0]}, padded);
      int64_t inner = 1;
      for (int d = axis + 1; d < s.n; ++d) inner *= s.at[d];
      for (int64_t i = 0; i < x.size(); ++i) ASSERT_EQ(padded[0].at(i), i / inner % width < cut ? 0 : x.at(i));
    }
}

TEST(Broadcast, AgreesWithTheReference) {
  struct Case {
    kb::Shape x, y;
  };
  for (const Case& k :
       {Case{{}, {3, 4}}, Case{{1}, {40000}}, Case{{4}, {3, 4}}, Case{{3, 1}, {3, 65}}, Case{{2, 1, 5}, {2, 3, 5}},
        Case{{4, 1}, {3, 4, 7}}, Case{{3, 4}, {3, 4}}, Case{{1, 1}, {1, 1}}})
    for (uint32_t dtype : {KB_F32, KB_F64, KB_I32}) {
      const Array x = counted(dtype, k.x);
      std::vector<Array> y{array(dtype, k.y)};
      run(kb::kernel_table<BroadcastKernel>(), {kb::Attr("shape", k.y)}, {&x}, y);
      for (int64_t i = 0; i < y[0].size(); ++i) ASSERT_EQ(y[0].at(i), x.at(reference::map_index(i, y[0].type, x.type)));
    }
}

TEST(Copies, KeepEveryBitOfAnyType) {
  const kb::Shape sizes{6, 2};
  const kb::Attr shape("shape", sizes);
  for (uint32_t dtype : {KB_U8, KB_I32, KB_I64, KB_BF16, KB_F32, KB_F64}) {
    Array x = array(dtype, {3, 4});
    for (size_t i = 0; i < x.bytes.size(); ++i) x.bytes[i] = char(i * 37);
    std::vector<Array> y{array(dtype, {6, 2})};
    run(kb::kernel_table<ReshapeKernel>(), {shape}, {&x}, y);
    EXPECT_EQ(y[0].bytes, x.bytes);
    run(kb::kernel_table<CopyKernel>(), {}, {&x}, y);
    EXPECT_EQ(y[0].bytes, x.bytes);
    run(kb::kernel_table<DetachKernel>(), {}, {&x}, y);
    EXPECT_EQ(y[0].bytes, x.bytes);
    run(kb::kernel_table<AllReduceKernel>(), {kb::Attr("how", "sum"), kb::Attr("over", "tokens")}, {&x}, y);
    EXPECT_EQ(y[0].bytes, x.bytes);
  }
}

}  // namespace
