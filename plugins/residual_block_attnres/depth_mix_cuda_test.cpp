// The CUDA kernels of depth_mix against depth_mix_reference.h, which computes in double from the same rounded operands.
// Tolerances: f32 2e-5, as on the CPU: a logit of 10 with a relative error of 1e-6 moves its weight by 1e-5. bf16 4e-3 of
// outputs that are rounded to bf16 once (half a unit is 2^-9 = 2e-3), twice where they were added to; sums stay f32.
#include <gtest/gtest.h>

#include "depth_mix_cuda_kernels.h"
#include "depth_mix_reference.h"
#include "tests/support/device_call.h"

namespace {
using kbtest::Array;

struct Case {
  std::vector<Array> v;
  Array norm, query, dh;
  int64_t tokens, d;
};
Case made(uint32_t dtype, int n, int64_t tokens, int64_t d, double scale = 1, double query = 0.3) {
  Case c;
  for (int i = 0; i < n; ++i) c.v.push_back(kbtest::normal(dtype, {tokens, d}, uint64_t(100 + i), scale));
  c.norm = kbtest::normal(KB_F32, {d}, 1);
  c.query = kbtest::normal(KB_F32, {d}, 2, query * std::min(1.0, std::sqrt(300 / double(d))));  // logits of a few
  c.dh = kbtest::normal(dtype, {tokens, d}, 3);
  c.tokens = tokens, c.d = d;
  return c;
}
std::vector<double> doubles(const Array& a) {
  std::vector<double> v;
  for (int64_t i = 0; i < a.size(); ++i) v.push_back(a.at(i));
  return v;
}
reference::Rows rows(const Case& c) {
  reference::Rows r;
  for (const Array& a : c.v) r.push_back(doubles(a));
  return r;
}
const double kEps = 1e-5;
const std::vector<kb_attr> kAttrs{kb::default_attr("eps", kEps)};

std::vector<const Array*> inputs(const Case& c, bool backward) {
  std::vector<const Array*> in;
  for (const Array& a : c.v) in.push_back(&a);
  in.push_back(&c.norm), in.push_back(&c.query);
  if (backward) in.push_back(&c.dh);
  return in;
}
std::vector<Array> forward(const Case& c, const kbtest::Options& o = {}) {
  std::vector<Array> out{kbtest::array(c.dh.type.dtype, {c.tokens, c.d}),
                         kbtest::array(KB_F32, {c.tokens, int64_t(c.v.size())})};
  out[0].type.extent = out[1].type.extent = c.v[0].type.extent;
  kbtest::run_device(kb::kernel_table<DepthMixCuda>(), kAttrs, inputs(c, false), out, o);
  return out;
}
std::vector<Array> gradients(const Case& c) {  // of the right types, zero
  std::vector<Array> out(c.v.size(), kbtest::array(c.dh.type.dtype, {c.tokens, c.d}));
  for (Array& a : out) a.type.extent = c.v[0].type.extent;
  out.push_back(kbtest::array(KB_F32, {c.d})), out.push_back(out.back());
  return out;
}
std::vector<Array> backward(const Case& c, const kbtest::Options& o = {}) {
  std::vector<Array> out = gradients(c);
  kbtest::run_device(kb::kernel_table<DepthMixBackwardCuda>(), kAttrs, inputs(c, true), out, o);
  return out;
}
std::vector<Array> expected_gradients(const Case& c) {
  const auto g =
      reference::depth_mix_backward(rows(c), doubles(c.norm), doubles(c.query), doubles(c.dh), c.tokens, kEps);
  std::vector<Array> out;
  for (const auto& v : g.v) out.push_back(kbtest::array(KB_F64, {c.tokens, c.d}, v));
  out.push_back(kbtest::array(KB_F64, {c.d}, g.norm)), out.push_back(kbtest::array(KB_F64, {c.d}, g.query));
  return out;
}

double worst_f32 = 0, worst_bf16 = 0, worst_sums = 0;  // checked where they arise, printed at the end
struct DepthMixOnCuda : testing::Test {
  static void TearDownTestSuite() {
    if (kbtest::have_device())
      printf("largest relative errors: f32 %.2e, bf16 %.2e, f32 sums and weights %.2e\n", worst_f32, worst_bf16,
             worst_sums);
  }
};
void note(double error, bool narrow, bool sums) {
  double& w = sums ? worst_sums : narrow ? worst_bf16 : worst_f32;
  if (!(error <= w)) w = error;
}
// The error of gradient k against the norm of all: with one source, the gradients of norm and query vanish.
void expect_gradients(const std::vector<Array>& got, const std::vector<Array>& want, size_t n,
                      const std::string& what) {
  double all = 0;
  for (const Array& a : want)
    for (int64_t i = 0; i < a.size(); ++i) all += a.at(i) * a.at(i);
  for (size_t k = 0; k < want.size(); ++k) {
    const bool narrow = got[k].type.dtype == KB_BF16;
    const double error = kbtest::relative_error(got[k], want[k], 1e-3 * std::sqrt(all));
    note(error, narrow, k >= n);
    EXPECT_LE(error, narrow ? 4e-3 : 2e-5) << what << ", output " << k;
  }
}
void expect_like_reference(const Case& c, const std::string& what) {
  const bool narrow = c.dh.type.dtype == KB_BF16;
  const auto want = reference::depth_mix(rows(c), doubles(c.norm), doubles(c.query), c.tokens, kEps);
  const std::vector<Array> got = forward(c);
  const double eh = kbtest::relative_error(got[0], kbtest::array(KB_F64, {c.tokens, c.d}, want.h));
  const double ep = kbtest::relative_error(got[1], kbtest::array(KB_F64, {c.tokens, int64_t(c.v.size())}, want.p));
  note(eh, narrow, false), note(ep, false, true);
  EXPECT_LE(eh, narrow ? 4e-3 : 2e-5) << what << ", h";
  EXPECT_LE(ep, 2e-5) << what << ", weights";
  expect_gradients(backward(c), expected_gradients(c), c.v.size(), what);
}

TEST_F(DepthMixOnCuda, EqualsTheReferenceOverOddSizes) {
  KB_NEEDS_DEVICE();
  for (int n : {1, 2, 5, 9, 14})
    for (int64_t tokens : {1, 7, 17, 65})
      for (int64_t d : {1, 3, 8, 24, 33, 264, 301, 512, 1032})
        for (uint32_t dtype : {KB_F32, KB_BF16})
          expect_like_reference(made(dtype, n, tokens, d), kb::text(n, " sources, ", tokens, " tokens, ", d,
                                                                    " channels, ", kb::dtype_name(dtype)));
}

TEST_F(DepthMixOnCuda, EqualsTheReferenceInEveryLayout) {
  KB_NEEDS_DEVICE();
  struct Size {
    int n;
    int64_t tokens, d;
  };
  for (const Size& s : {Size{9, 700, 1024},
                        {4, 3001, 256},
                        {5, 300, 2048},
                        {9, 140, 7168},
                        {2, 20, 14336},
                        {14, 3, 7168},
                        {1, 3, 50000},
                        {3, 5, 16384},
                        {5, 1200, 1024}})
    for (uint32_t dtype : {KB_F32, KB_BF16})
      expect_like_reference(made(dtype, s.n, s.tokens, s.d), kb::text(s.n, " sources, ", s.tokens, " tokens, ", s.d,
                                                                      " channels, ", kb::dtype_name(dtype)));
}

TEST_F(DepthMixOnCuda, EqualsTheReferenceForTinyAndHugeSources) {
  KB_NEEDS_DEVICE();
  for (double scale : {1e-8, 1e-3, 1e3, 1e8})
    for (int64_t d : {33, 64}) expect_like_reference(made(KB_F32, 5, 7, d, scale), kb::text("scale ", scale));
}

TEST_F(DepthMixOnCuda, StaysFiniteWhenOneLogitRulesAll) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : {KB_F32, KB_BF16}) {
    const Case c = made(dtype, 5, 7, 64, 1, 1e4);
    for (const auto& out : {forward(c), backward(c)})
      for (const Array& a : out)
        for (int64_t i = 0; i < a.size(); ++i) ASSERT_TRUE(std::isfinite(a.at(i)));
  }
}

TEST_F(DepthMixOnCuda, ReturnsZeroSourcesAsZero) {
  KB_NEEDS_DEVICE();
  Case c = made(KB_BF16, 3, 4, 8);
  for (Array& a : c.v) std::fill(a.bytes.begin(), a.bytes.end(), char(0));
  const std::vector<Array> out = forward(c);
  for (int64_t i = 0; i < c.tokens * c.d; ++i) EXPECT_EQ(out[0].at(i), 0);
}

TEST_F(DepthMixOnCuda, AddsToGradientsWhenAsked) {
  KB_NEEDS_DEVICE();
  for (int64_t d : {9, 64, 2048})
    for (uint32_t dtype : {KB_F32, KB_BF16}) {
      const Case c = made(dtype, 3, 20, d);
      std::vector<Array> out = gradients(c), want = expected_gradients(c);
      for (size_t k = 0; k < out.size(); ++k)
        for (int64_t i = 0; i < out[k].size(); ++i) {
          if (k == 1) break;  // not added to
          out[k].set(i, double(k + 1) * 0.5), want[k].set(i, want[k].at(i) + out[k].at(i));
        }
      kbtest::Options o;
      o.accumulate = 0b11101;
      kbtest::run_device(kb::kernel_table<DepthMixBackwardCuda>(), kAttrs, inputs(c, true), out, o);
      expect_gradients(out, want, 3, kb::text(d, " channels, ", kb::dtype_name(dtype)));
    }
}

TEST_F(DepthMixOnCuda, LeavesUnwantedOutputsAlone) {
  KB_NEEDS_DEVICE();
  for (int64_t d : {9, 64, 2048}) {
    const Case c = made(KB_F32, 3, 20, d);
    const std::vector<Array> want = backward(c);
    for (uint64_t mask : {0b00010u, 0b11000u, 0b01000u, 0b10000u, 0b00111u, 0b11111u}) {
      std::vector<Array> out = gradients(c);
      kbtest::Options o;
      o.unwanted = mask;
      kbtest::run_device(kb::kernel_table<DepthMixBackwardCuda>(), kAttrs, inputs(c, true), out, o);
      for (size_t k = 0; k < out.size(); ++k)
        if (!(mask >> k & 1)) {
          EXPECT_EQ(out[k].bytes, want[k].bytes) << "mask " << mask << ", output " << k;
        }
    }
    kbtest::Options no_weights, no_h;
    no_weights.unwanted = 2, no_h.unwanted = 1;
    EXPECT_EQ(forward(c, no_weights)[0].bytes, forward(c)[0].bytes);
    EXPECT_EQ(forward(c, no_h)[1].bytes, forward(c)[1].bytes);
  }
}

TEST_F(DepthMixOnCuda, GivesTheSameBitsEveryTime) {
  KB_NEEDS_DEVICE();
  for (int64_t d : {1024, 301, 7168}) {
    const Case c = made(KB_BF16, 5, 600, d);
    const std::vector<Array> a = backward(c), h = forward(c);
    for (int again = 0; again < 3; ++again) {
      const std::vector<Array> b = backward(c);
      for (size_t k = 0; k < a.size(); ++k) EXPECT_EQ(a[k].bytes, b[k].bytes) << k;
      EXPECT_EQ(forward(c)[0].bytes, h[0].bytes);
    }
  }
}

TEST_F(DepthMixOnCuda, CountsOnlyRowsInsideTheExtent) {
  KB_NEEDS_DEVICE();
  for (int64_t d : {9, 64, 2048})
    for (int32_t rows_used : {0, 1, 12}) {
      Case used = made(KB_F32, 3, 20, d), whole = used;  // rows past the extent hold other numbers
      for (Array& a : used.v) a.type.extent = 1;
      used.dh.type.extent = 1;
      std::fill(whole.dh.bytes.begin() + rows_used * d * 4, whole.dh.bytes.end(), char(0));  // no gradient flows there
      kbtest::Options o;
      o.extents = {0, rows_used};
      const std::vector<Array> want = backward(whole), got = backward(used, o);
      for (size_t k = 3; k < 5; ++k) EXPECT_LE(kbtest::relative_error(got[k], want[k]), 1e-6) << k;
      const Array h = forward(whole)[0], part = forward(used, o)[0];
      for (int64_t i = 0; i < rows_used * d; ++i) EXPECT_EQ(part.at(i), h.at(i));
    }
}

TEST_F(DepthMixOnCuda, DeclinesDoubleInWords) {
  kb_tensor in[4]{};
  for (kb_tensor& t : in) t.type.dtype = KB_F64;
  kb_call c{};
  c.in = in, c.n_in = 4, c.attr = kAttrs.data(), c.n_attr = 1;
  kb_error e{};
  EXPECT_NE(kb::kernel_table<DepthMixCuda>()->supports(&c, &e), 0);
  EXPECT_NE(std::string(e.message).find("f64"), std::string::npos);
}

}  // namespace
