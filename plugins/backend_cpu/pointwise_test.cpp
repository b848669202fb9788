#include "pointwise.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "cast.h"
#include "elements_reference.h"

using namespace kb::cpu;
using kbtest::Array;
using kbtest::array;
using kbtest::normal;
using kbtest::run;

namespace {

const std::vector<kb_attr> kNone;

// Distance in representable numbers.
template <class T, class I>
double ulps_as(T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b) ? 0 : INFINITY;
  if (a == b) return 0;
  if (std::isinf(a) || std::isinf(b)) return INFINITY;
  const auto rank = [](T x) {
    const I i = std::bit_cast<I>(x);
    return i < 0 ? std::numeric_limits<I>::min() - i : i;
  };
  return double(std::fabs((long double)(rank(a)) - (long double)(rank(b))));
}
double ulps(const Array& a, int64_t i, long double want) {
  if (a.type.dtype == KB_F32) return ulps_as<float, int32_t>(a.data<float>()[i], float(want));
  return ulps_as<double, int64_t>(a.data<double>()[i], double(want));
}

std::vector<double> ladder(double least, double most, bool negative) {  // both extremes, and many between
  std::vector<double> v;
  for (double x = least; x <= most; x *= 1.013) {
    v.push_back(x);
    if (negative) v.push_back(-x);
  }
  return v;
}

struct Case {
  const char* name;
  const kb_kernel* kernel;
  long double (*f)(long double);
  std::vector<double> x;
  double tolerance;  // ulp
};
long double sigmoid(long double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
long double softplus(long double x) { return std::max(x, 0.0L) + std::log1p(std::exp(-std::fabs(x))); }

std::vector<double> with_extremes(std::vector<double> v, bool angles = false) {
  for (double x : {0.0, -0.0, 1e4, -1e4, double(NAN)}) v.push_back(x);
  if (!angles) v.push_back(INFINITY), v.push_back(-INFINITY);
  return v;
}

void check(const Case& k, uint32_t dtype) {
  const Array x = array(dtype, {int64_t(k.x.size())}, k.x);
  std::vector<Array> y{array(dtype, {x.size()})};
  run(k.kernel, kNone, {&x}, y);
  for (int64_t i = 0; i < x.size(); ++i) {
    const long double at = dtype == KB_F32 ? (long double)(x.data<float>()[i]) : (long double)(x.data<double>()[i]);
    EXPECT_LE(ulps(y[0], i, k.f(at)), k.tolerance) << k.name << " " << kb::dtype_name(dtype) << " at " << double(at)
                                                   << ": " << y[0].at(i) << " want " << double(k.f(at));
  }
}

TEST(Unary, AgreesWithTheLibraryWithinFourUlpAtAllMagnitudes) {
  const auto wide = with_extremes(ladder(1e-30, 9e3, true));
  const Case cases[] = {
      {"exp", kb::kernel_table<ExpKernel>(), [](long double x) { return std::exp(x); }, wide, 4},
      {"log", kb::kernel_table<LogKernel>(), [](long double x) { return std::log(x); },
       with_extremes(ladder(1e-30, 1e30, false)), 4},
      {"sigmoid", kb::kernel_table<SigmoidKernel>(), sigmoid, wide, 4},
      {"tanh", kb::kernel_table<TanhKernel>(), [](long double x) { return std::tanh(x); }, wide, 4},
      {"softplus", kb::kernel_table<SoftplusKernel>(), softplus, wide, 4},
      {"rsqrt", kb::kernel_table<RsqrtKernel>(), [](long double x) { return 1 / std::sqrt(x); },
       with_extremes(ladder(1e-30, 1e30, false)), 1},
      {"sqrt", kb::kernel_table<SqrtKernel>(), [](long double x) { return std::sqrt(x); },
       with_extremes(ladder(1e-30, 1e30, false)), 1},
      {"erf", kb::kernel_table<ErfKernel>(), [](long double x) { return std::erf(x); }, wide, 4},
      {"floor", kb::kernel_table<FloorKernel>(), [](long double x) { return std::floor(x); }, wide, 0},
      {"is_finite", kb::kernel_table<IsFiniteKernel>(), [](long double x) { return (long double)(std::isfinite(x)); },
       wide, 0},
  };
  for (const Case& k : cases)
    for (uint32_t dtype : {KB_F32, KB_F64}) check(k, dtype);
}

// Near a zero of the function the ulp of the result is far below the one of the reduced angle: the bound is absolute
// there.
TEST(Unary, SineAndCosineAreAccurateAndFallBackForLargeAngles) {
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (const bool sine : {true, false}) {
      const auto v = with_extremes(ladder(1e-6, 1e7, true), true);
      const Array x = array(dtype, {int64_t(v.size())}, v);
      std::vector<Array> y{array(dtype, {x.size()})};
      run(sine ? kb::kernel_table<SinKernel>() : kb::kernel_table<CosKernel>(), kNone, {&x}, y);
      for (int64_t i = 0; i < x.size(); ++i) {
        const double at = x.at(i), want = sine ? std::sin(at) : std::cos(at);
        if (std::isnan(at)) {
          EXPECT_TRUE(std::isnan(y[0].at(i)));
          continue;
        }
        EXPECT_LE(std::fabs(y[0].at(i) - want),
                  (dtype == KB_F32 ? 2.4e-7 : 4.5e-16) * std::max(1e-2, std::fabs(want)) * 2)
            << at;
      }
    }
}

TEST(Unary, SaturatesWithoutNaN) {
  for (uint32_t dtype : {KB_F32, KB_F64}) {
    const Array x = array(dtype, {4}, {-1e4, 1e4, -INFINITY, INFINITY});
    std::vector<Array> y{array(dtype, {4})};
    run(kb::kernel_table<SigmoidKernel>(), kNone, {&x}, y);
    EXPECT_EQ(y[0].at(0), 0);
    EXPECT_EQ(y[0].at(1), 1);
    EXPECT_EQ(y[0].at(2), 0);
    EXPECT_EQ(y[0].at(3), 1);
    run(kb::kernel_table<SoftplusKernel>(), kNone, {&x}, y);
    EXPECT_EQ(y[0].at(0), 0);
    EXPECT_EQ(y[0].at(1), 1e4);
    EXPECT_EQ(y[0].at(2), 0);
    EXPECT_EQ(y[0].at(3), INFINITY);
    run(kb::kernel_table<TanhKernel>(), kNone, {&x}, y);
    EXPECT_EQ(y[0].at(0), -1);
    EXPECT_EQ(y[0].at(1), 1);
    EXPECT_EQ(y[0].at(2), -1);
    EXPECT_EQ(y[0].at(3), 1);
  }
}

TEST(Unary, HandlesEveryTailLengthAndTouchesNothingBehind) {
  for (int64_t n : {1, 2, 3, 5, 17, 63, 64, 65, 1000, 40001}) {
    const Array x = normal(KB_F32, {n}, uint64_t(n));
    std::vector<Array> y{array(KB_F32, {n})};
    y[0].bytes.resize(size_t(n + 1) * 4);
    run(kb::kernel_table<AffineKernel>(), {kb::Attr("mul", 2.0), kb::Attr("add", -1.0)}, {&x}, y);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(y[0].data<float>()[i], 2 * x.data<float>()[i] - 1);
    EXPECT_EQ(uint8_t(y[0].bytes[size_t(n) * 4]), 0xff);
  }
}

TEST(Unary, ProcessesOnlyTheRowsInUse) {
  Array x = normal(KB_F32, {5, 7}, 1);
  x.type.extent = 1;
  std::vector<Array> y{x};
  run(kb::kernel_table<ExpKernel>(), kNone, {&x}, y, {{0, 3}});
  EXPECT_FLOAT_EQ(y[0].data<float>()[20], std::exp(x.data<float>()[20]));
  EXPECT_TRUE(std::isnan(y[0].at(21)));
}

using Plain = double (*)(double, double);
struct Pair {
  const char* name;
  const kb_kernel* kernel;
  Plain f;
};
const std::vector<Pair>& pairs() {
  static const std::vector<Pair> p = {
      {"add", kb::kernel_table<AddKernel>(), [](double a, double b) { return a + b; }},
      {"sub", kb::kernel_table<SubKernel>(), [](double a, double b) { return a - b; }},
      {"mul", kb::kernel_table<MulKernel>(), [](double a, double b) { return a * b; }},
      {"div", kb::kernel_table<DivKernel>(), [](double a, double b) { return a / b; }},
      {"minimum", kb::kernel_table<MinimumKernel>(), [](double a, double b) { return a < b ? a : b; }},
      {"maximum", kb::kernel_table<MaximumKernel>(), [](double a, double b) { return a > b ? a : b; }},
      {"less", kb::kernel_table<LessKernel>(), [](double a, double b) { return double(a < b); }},
  };
  return p;
}

TEST(Binary, AgreesWithTheReferenceForEveryBroadcastPatternAndType) {
  struct Shapes {
    kb::Shape a, b, y;
  };
  std::vector<Shapes> shapes = {{{}, {}, {}},
                                {{1}, {7}, {7}},
                                {{5, 17}, {17}, {5, 17}},
                                {{5, 17}, {5, 1}, {5, 17}},
                                {{17}, {5, 17}, {5, 17}},
                                {{5, 1}, {1, 9}, {5, 9}},
                                {{3, 4, 1}, {3, 4, 65}, {3, 4, 65}},
                                {{3, 4, 8}, {4, 8}, {3, 4, 8}},
                                {{3, 4, 8}, {4, 1}, {3, 4, 8}},
                                {{3, 4, 8}, {3, 1, 8}, {3, 4, 8}},
                                {{2, 1, 3, 1}, {5, 1, 7}, {2, 5, 3, 7}},
                                {{300, 200}, {200}, {300, 200}},
                                {{300, 200}, {300, 1}, {300, 200}},
                                {{0, 4}, {4}, {0, 4}},
                                {{2, 3}, {}, {2, 3}}};
  for (int64_t n : {1, 2, 3, 5, 63, 64, 65, 1000, 50000}) shapes.push_back({{n}, {n}, {n}});
  const uint32_t types[][3] = {{KB_F32, KB_F32, KB_F32},
                               {KB_F64, KB_F64, KB_F64},
                               {KB_F32, KB_F64, KB_F64},
                               {KB_F64, KB_F32, KB_F64},
                               {KB_I32, KB_I32, KB_I32}};
  for (const Pair& p : pairs())
    for (const Shapes& s : shapes)
      for (const auto& t : types) {
        if (t[2] == KB_I32 && std::string(p.name) == "div") continue;
        const Array a = normal(t[0], s.a, 1, 9), b = normal(t[1], s.b, 2, 9);
        std::vector<Array> y{array(t[2], s.y)};
        Array want = y[0];
        reference::binary(a, b, want, p.f);
        run(p.kernel, kNone, {&a, &b}, y);
        for (int64_t i = 0; i < want.size(); ++i)  // exact: one rounding on both sides
          ASSERT_EQ(y[0].at(i), want.at(i)) << p.name << " " << t[0] << t[1] << " " << i << " of " << want.size();
      }
}

TEST(Binary, MayWriteOverAnOperandOfItsOwnShape) {
  for (int side : {0, 1}) {
    Array x = normal(KB_F32, {65, 17}, 1);
    const Array other = normal(KB_F32, side ? kb::Shape{65, 1} : kb::Shape{17}, 2);
    std::vector<Array> want{x}, y{x};
    run(kb::kernel_table<SubKernel>(), kNone,
        side ? std::vector<const Array*>{&other, &x} : std::vector<const Array*>{&x, &other}, want);
    // `accumulate` keeps the helper from clearing the output, which here is the operand's memory.
    run(kb::kernel_table<SubKernel>(), kNone,
        side ? std::vector<const Array*>{&other, &y[0]} : std::vector<const Array*>{&y[0], &other}, y, {{}, 1});
    EXPECT_EQ(y[0].bytes, want[0].bytes);
  }
}

TEST(Binary, RefusesShapesThatDoNotBroadcast) {
  const Array a = normal(KB_F32, {4}, 1), b = normal(KB_F32, {3}, 1);
  std::vector<Array> y{array(KB_F32, {4})};
  EXPECT_THROW(run(kb::kernel_table<AddKernel>(), kNone, {&a, &b}, y), kb::Error);
  const Array half = array(KB_BF16, {4});
  EXPECT_THROW(run(kb::kernel_table<ExpKernel>(), kNone, {&half}, y), kb::Error);
}

TEST(Cast, RoundsToNearestEvenBf16AndBack) {
  EXPECT_EQ(float_to_bf16(1.0f).bits, 0x3f80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808000u)).bits, 0x3f80);  // tie: even stays
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f818000u)).bits, 0x3f82);  // tie: odd goes up
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808001u)).bits, 0x3f81);
  EXPECT_EQ(float_to_bf16(INFINITY).bits, 0x7f80);
  EXPECT_EQ(float_to_bf16(-3.4e38f).bits, 0xff80);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(NAN))));
  EXPECT_EQ(double_to_bf16(1.0 + 0x1p-8 + 0x1p-40).bits, 0x3f81);  // by way of a float this tie would fall to 0x3f80
  for (uint32_t b = 0; b < 0x10000; ++b) {
    const float x = bf16_to_float({uint16_t(b)});
    if (!std::isnan(x)) {
      ASSERT_EQ(float_to_bf16(x).bits, b);
    }
  }
}

TEST(Cast, ConvertsBetweenAllTypesAndClampsToIntegers) {
  const Array x = array(KB_F64, {6}, {-1.5, 2.75, 300, -1e20, 1e20, double(NAN)});
  std::vector<Array> i{array(KB_I32, {6})}, u{array(KB_U8, {6})}, f{array(KB_F32, {6})}, l{array(KB_I64, {6})};
  const std::vector<kb_attr> to = {kb::Attr("dtype", 0)};
  run(kb::kernel_table<CastKernel>(), to, {&x}, i);
  EXPECT_EQ(std::vector<int32_t>(i[0].data<int32_t>(), i[0].data<int32_t>() + 6),
            (std::vector<int32_t>{-1, 2, 300, INT32_MIN, INT32_MAX, 0}));
  run(kb::kernel_table<CastKernel>(), to, {&x}, u);
  EXPECT_EQ(std::vector<uint8_t>(u[0].data<uint8_t>(), u[0].data<uint8_t>() + 6),
            (std::vector<uint8_t>{0, 2, 255, 0, 255, 0}));
  run(kb::kernel_table<CastKernel>(), to, {&x}, l);
  EXPECT_EQ(l[0].data<int64_t>()[3], INT64_MIN);
  run(kb::kernel_table<CastKernel>(), to, {&i[0]}, f);
  EXPECT_EQ(f[0].at(2), 300);
  std::vector<Array> h{array(KB_BF16, {6})};
  run(kb::kernel_table<CastKernel>(), to, {&x}, h);
  run(kb::kernel_table<CastKernel>(), to, {&h[0]}, f);
  EXPECT_EQ(f[0].at(0), -1.5);
  EXPECT_EQ(f[0].at(1), 2.75);
}

}  // namespace
