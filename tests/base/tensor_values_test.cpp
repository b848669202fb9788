#include "base/tensor_values.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kitbash/error.h"

namespace kitbash {
namespace {

template <class T>
std::vector<double> values(const char* dtype, const std::vector<T>& v) {
  SafeTensor t;
  t.dtype = dtype;
  t.shape = {int64_t(v.size())};
  t.data = reinterpret_cast<const char*>(v.data());
  return tensor_values(t, "test");
}

TEST(TensorValues, ReadsEveryNumberType) {
  EXPECT_EQ(values<double>("F64", {1.5, -2}), (std::vector<double>{1.5, -2}));
  EXPECT_EQ(values<float>("F32", {0.25f}), (std::vector<double>{0.25}));
  EXPECT_EQ(values<int64_t>("I64", {-7}), (std::vector<double>{-7}));
  EXPECT_EQ(values<int32_t>("I32", {-1, 3}), (std::vector<double>{-1, 3}));
  EXPECT_EQ(values<uint8_t>("U8", {255}), (std::vector<double>{255}));
  EXPECT_EQ(values<uint8_t>("BOOL", {1, 0}), (std::vector<double>{1, 0}));
  EXPECT_EQ(values<uint16_t>("BF16", {0x3F80, 0xC040}), (std::vector<double>{1, -3}));
}

TEST(TensorValues, ReadsHalvesWithTheirExtremes) {
  const auto v = values<uint16_t>("F16", {0x3C00, 0xC000, 0x7BFF, 0x0001, 0x0400, 0x7C00});
  EXPECT_EQ(v, (std::vector<double>{1, -2, 65504, std::ldexp(1, -24), std::ldexp(1, -14), INFINITY}));
  EXPECT_TRUE(std::isnan(values<uint16_t>("F16", {0x7E00})[0]));
}

TEST(TensorValues, RefusesTypesWithoutNumbers) { EXPECT_THROW(values<uint8_t>("F8_E4M3", {1}), kb::Error); }

}  // namespace
}  // namespace kitbash
