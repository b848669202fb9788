// Pointwise ops and casts against the library's functions in double.
#include "elements_test.h"
#include "pointwise_kernels.h"

using namespace elements_test;
using namespace kb::cuda::element;

namespace {

class Summary : public ::testing::Environment {
 public:
  void TearDown() override {
    for (const auto& [what, e] : worst()) std::printf("largest relative error  %-34s %.2e\n", what.c_str(), e);
  }
};
const auto* const kSummary = ::testing::AddGlobalTestEnvironment(new Summary);

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }

std::vector<double> ladder(double least, double most, bool negative) {
  std::vector<double> v;
  for (double x = least; x <= most; x *= 1.11) {
    v.push_back(x);
    if (negative) v.push_back(-x);
  }
  for (double x : {0.0, -0.0, 1e4, -1e4, double(NAN), double(INFINITY), double(-INFINITY)}) v.push_back(x);
  return v;
}

struct Case {
  const char* name;
  const kb_kernel* kernel;
  double (*f)(double);
  std::vector<double> x;
  double relative;  // in f32
};

TEST(CudaUnary, AgreesWithTheLibraryAtAllMagnitudes) {
  KB_NEEDS_DEVICE();
  const auto all = ladder(1e-30, 9e3, true), positive = ladder(1e-30, 1e30, false);
  const Case cases[] = {
      {"exp", kb::kernel_table<ExpKernel>(), [](double x) { return std::exp(x); }, all, 5e-7},
      {"log", kb::kernel_table<LogKernel>(), [](double x) { return std::log(x); }, positive, 5e-7},
      {"sigmoid", kb::kernel_table<SigmoidKernel>(), sigmoid, all, 5e-7},
      {"tanh", kb::kernel_table<TanhKernel>(), [](double x) { return std::tanh(x); }, all, 5e-7},
      {"softplus", kb::kernel_table<SoftplusKernel>(), softplus, all, 5e-7},
      {"rsqrt", kb::kernel_table<RsqrtKernel>(), [](double x) { return 1 / std::sqrt(x); }, positive, 2e-7},
      {"sqrt", kb::kernel_table<SqrtKernel>(), [](double x) { return std::sqrt(x); }, positive, 1e-7},
      {"erf", kb::kernel_table<ErfKernel>(), [](double x) { return std::erf(x); }, all, 5e-7},
      {"sin", kb::kernel_table<SinKernel>(), [](double x) { return std::sin(x); }, all, 5e-7},
      {"cos", kb::kernel_table<CosKernel>(), [](double x) { return std::cos(x); }, all, 5e-7},
      {"floor", kb::kernel_table<FloorKernel>(), [](double x) { return std::floor(x); }, all, 0},
      {"is_finite", kb::kernel_table<IsFiniteKernel>(), [](double x) { return double(std::isfinite(x)); }, all, 0},
  };
  for (const Case& k : cases)
    for (uint32_t dtype : kTypes) {
      const Array x = array(dtype, {int64_t(k.x.size())}, k.x);
      std::vector<Array> y{array(dtype, {x.size()})};
      Array want = y[0];
      for (int64_t i = 0; i < x.size(); ++i) want.set(i, k.f(x.at(i)));
      run_device(k.kernel, {}, {&x}, y);
      // Beside zeros of sine and cosine an absolute error; below 1e-37 floats have fewer bits.
      expect_close(k.name, y[0], want, dtype == KB_F32 ? k.relative : 8e-3,
                   k.relative ? 1.2e-7 * (k.name[2] == 'n' || k.name[2] == 's') + 1e-37 : 0);
    }
}

TEST(CudaUnary, HandlesEveryTailLengthAndTouchesNothingBehind) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : kTypes)
    for (int64_t n : {0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 1000, 2047, 2048, 2049, 40001}) {
      const Array x = normal(dtype, {n}, uint64_t(n));
      std::vector<Array> y{array(dtype, {n})};
      Array want = y[0];
      for (int64_t i = 0; i < n; ++i) want.set(i, 2 * x.at(i) - 1);
      run_device(kb::kernel_table<AffineKernel>(), {kb::Attr("mul", 2.0), kb::Attr("add", -1.0)}, {&x}, y);
      ASSERT_LE(error("affine", y[0], want), dtype == KB_F32 ? 1e-7 : 1e-9);
    }
  const Array x = array(KB_I32, {5}, {-7, -1, 0, 3, 1000000});
  std::vector<Array> y{array(KB_I32, {5})};
  run_device(kb::kernel_table<AffineKernel>(), {kb::Attr("mul", 3.0), kb::Attr("add", 1.0)}, {&x}, y);
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(y[0].at(i), 3 * x.at(i) + 1);
}

using Plain = double (*)(double, double);
struct Pair {
  const char* name;
  const kb_kernel* kernel;
  Plain f;
};

TEST(CudaBinary, AgreesWithTheReferenceForEveryBroadcastPatternAndType) {
  KB_NEEDS_DEVICE();
  const Pair pairs[] = {
      {"add", kb::kernel_table<AddKernel>(), [](double a, double b) { return a + b; }},
      {"sub", kb::kernel_table<SubKernel>(), [](double a, double b) { return a - b; }},
      {"mul", kb::kernel_table<MulKernel>(), [](double a, double b) { return a * b; }},
      {"div", kb::kernel_table<DivKernel>(), [](double a, double b) { return a / b; }},
      {"minimum", kb::kernel_table<MinimumKernel>(), [](double a, double b) { return a < b ? a : b; }},
      {"maximum", kb::kernel_table<MaximumKernel>(), [](double a, double b) { return a > b ? a : b; }},
      {"less", kb::kernel_table<LessKernel>(), [](double a, double b) { return double(a < b); }},
  };
  struct Shapes {
    kb::Shape a, b, y;
  };
  std::vector<Shapes> shapes = {{{}, {}, {}},
                                {{1}, {7}, {7}},
                                {{5, 17}, {17}, {5, 17}},
                                {{5, 16}, {16}, {5, 16}},
                                {{5, 16}, {5, 1}, {5, 16}},
                                {{17}, {5, 17}, {5, 17}},
                                {{5, 1}, {1, 9}, {5, 9}},
                                {{5, 1}, {1, 8}, {5, 8}},
                                {{3, 4, 1}, {3, 4, 65}, {3, 4, 65}},
                                {{3, 4, 8}, {4, 8}, {3, 4, 8}},
                                {{3, 4, 8}, {4, 1}, {3, 4, 8}},
                                {{3, 4, 8}, {3, 1, 8}, {3, 4, 8}},
                                {{2, 1, 3, 1}, {5, 1, 7}, {2, 5, 3, 7}},
                                {{2, 1, 3, 1}, {5, 1, 24}, {2, 5, 3, 24}},
                                {{300, 200}, {200}, {300, 200}},
                                {{300, 200}, {300, 1}, {300, 200}},
                                {{0, 4}, {4}, {0, 4}},
                                {{2, 3}, {}, {2, 3}}};
  for (int64_t n : {1, 8, 63, 64, 1000, 50000}) shapes.push_back({{n}, {n}, {n}});
  const uint32_t types[][3] = {{KB_F32, KB_F32, KB_F32},
                               {KB_BF16, KB_BF16, KB_BF16},
                               {KB_F32, KB_BF16, KB_F32},
                               {KB_BF16, KB_F32, KB_F32},
                               {KB_I32, KB_I32, KB_I32}};
  for (const Pair& p : pairs)
    for (const Shapes& s : shapes)
      for (const auto& t : types) {
        if (t[2] == KB_I32 && std::string(p.name) == "div") continue;
        const Array a = normal(t[0], s.a, 1, 9), b = normal(t[1], s.b, 2, 9);
        std::vector<Array> y{array(t[2], s.y)};
        Array want = y[0];
        reference::binary(a, b, want, p.f);
        run_device(p.kernel, {}, {&a, &b}, y);
        for (int64_t i = 0; i < want.size(); ++i)  // exact: one rounding on both sides; the quotient may take two
          ASSERT_NEAR(y[0].at(i), want.at(i),
                      std::string(p.name) == "div" && t[2] == KB_BF16 ? 8e-3 * std::fabs(want.at(i)) : 0)
              << p.name << " " << t[0] << t[1] << " " << i << " of " << want.size();
      }
}

TEST(CudaBinary, DeclinesWhatItCannotDo) {
  const Array a = normal(KB_F64, {4}, 1), f = normal(KB_F32, {4}, 1), i = array(KB_I32, {4});
  std::vector<Array> y{array(KB_F64, {4})}, z{array(KB_I32, {4})};
  KB_NEEDS_DEVICE();
  EXPECT_THROW(run_device(kb::kernel_table<AddKernel>(), {}, {&a, &a}, y), kb::Error);
  EXPECT_THROW(run_device(kb::kernel_table<ExpKernel>(), {}, {&a}, y), kb::Error);
  EXPECT_THROW(run_device(kb::kernel_table<DivKernel>(), {}, {&i, &i}, z), kb::Error);
}

TEST(CudaCast, RoundsToNearestEvenAndClampsToIntegers) {
  KB_NEEDS_DEVICE();
  const std::vector<kb_attr> to = {kb::Attr("dtype", 0)};
  Array bits = array(KB_F32, {7});
  const uint32_t in[] = {0x3f800000, 0x3f808000, 0x3f818000, 0x3f808001, 0x7f800000, 0xff7fffff, 0x7fc00000};
  const uint16_t out[] = {0x3f80, 0x3f80, 0x3f82, 0x3f81, 0x7f80, 0xff80, 0x7fff};
  std::memcpy(bits.bytes.data(), in, sizeof(in));
  std::vector<Array> h{array(KB_BF16, {7})};
  run_device(kb::kernel_table<CastKernel>(), to, {&bits}, h);
  for (int64_t i = 0; i < 7; ++i) EXPECT_EQ(h[0].data<uint16_t>()[i], out[i]) << i;

  const Array x = array(KB_F32, {6}, {-1.5, 2.75, 300, -1e20, 1e20, double(NAN)});
  std::vector<Array> i{array(KB_I32, {6})}, u{array(KB_U8, {6})}, f{array(KB_F32, {6})}, l{array(KB_I64, {6})},
      b{array(KB_BF16, {6})};
  run_device(kb::kernel_table<CastKernel>(), to, {&x}, i);
  EXPECT_EQ(std::vector<int32_t>(i[0].data<int32_t>(), i[0].data<int32_t>() + 6),
            (std::vector<int32_t>{-1, 2, 300, INT32_MIN, INT32_MAX, 0}));
  run_device(kb::kernel_table<CastKernel>(), to, {&x}, u);
  EXPECT_EQ(std::vector<uint8_t>(u[0].data<uint8_t>(), u[0].data<uint8_t>() + 6),
            (std::vector<uint8_t>{0, 2, 255, 0, 255, 0}));
  run_device(kb::kernel_table<CastKernel>(), to, {&x}, l);
  EXPECT_EQ(l[0].data<int64_t>()[3], INT64_MIN);
  run_device(kb::kernel_table<CastKernel>(), to, {&i[0]}, f);
  EXPECT_EQ(f[0].at(2), 300);
  run_device(kb::kernel_table<CastKernel>(), to, {&i[0]}, b);
  EXPECT_EQ(b[0].at(0), -1);
  run_device(kb::kernel_table<CastKernel>(), to, {&b[0]}, l);
  EXPECT_EQ(l[0].data<int64_t>()[1], 2);
  for (int64_t n : {1, 7, 8, 1000, 4099}) {
    const Array wide_x = normal(KB_F32, {n}, 3);
    std::vector<Array> narrow_y{array(KB_BF16, {n})}, back{array(KB_F32, {n})};
    Array want = narrow_y[0];
    for (int64_t k = 0; k < n; ++k) want.set(k, wide_x.at(k));
    run_device(kb::kernel_table<CastKernel>(), to, {&wide_x}, narrow_y);
    expect_bytes(narrow_y[0], want);
    run_device(kb::kernel_table<CastKernel>(), to, {&narrow_y[0]}, back);
    for (int64_t k = 0; k < n; ++k) ASSERT_EQ(back[0].at(k), want.at(k));
  }
}

}  // namespace
