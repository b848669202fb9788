// The kernels of depth_mix against depth_mix_reference.h, and the reference against central differences.
// Tolerances: double 1e-12: logits reach 40 here, and where one weight is nearly 1, dp_i - sum p_j dp_j loses three
// digits of the 1e-15 that reordered sums differ by. Float 2e-5: a logit of 10 with a relative error of 1e-6 moves its
// weight by 1e-5.
#include <gtest/gtest.h>

#include "depth_mix.h"
#include "depth_mix_reference.h"
#include "tests/support/kernel_call.h"

namespace {
using kbtest::Array;

struct Case {
  std::vector<Array> v;
  Array norm, query, dh;
  int64_t tokens, d;
};
Case made(uint32_t dtype, int n, int64_t tokens, int64_t d, double scale = 1, double query = 1) {
  Case c;
  for (int i = 0; i < n; ++i) c.v.push_back(kbtest::normal(dtype, {tokens, d}, uint64_t(100 + i), scale));
  c.norm = kbtest::normal(dtype, {d}, 1), c.query = kbtest::normal(dtype, {d}, 2, query);
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
  const uint32_t dtype = c.norm.type.dtype;
  std::vector<Array> out{kbtest::array(dtype, {c.tokens, c.d}), kbtest::array(dtype, {c.tokens, int64_t(c.v.size())})};
  kbtest::run(kb::kernel_table<DepthMixCpu>(), kAttrs, inputs(c, false), out, o);
  return out;
}
std::vector<Array> gradients(const Case& c) {  // of the right types, zero
  std::vector<Array> out(c.v.size(), kbtest::array(c.norm.type.dtype, {c.tokens, c.d}));
  out.push_back(kbtest::array(c.norm.type.dtype, {c.d})), out.push_back(out.back());
  return out;
}
std::vector<Array> backward(const Case& c, const kbtest::Options& o = {}) {
  std::vector<Array> out = gradients(c);
  kbtest::run(kb::kernel_table<DepthMixBackwardCpu>(), kAttrs, inputs(c, true), out, o);
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
// The error of gradient k against the norm of all: with one source, the gradients of norm and query vanish.
void expect_gradients(const std::vector<Array>& got, const std::vector<Array>& want, double tolerance,
                      const char* what) {
  double all = 0;
  for (const Array& a : want)
    for (int64_t i = 0; i < a.size(); ++i) all += a.at(i) * a.at(i);
  for (size_t k = 0; k < want.size(); ++k)
    EXPECT_LE(kbtest::relative_error(got[k], want[k], 1e-3 * std::sqrt(all)), tolerance) << what << ", output " << k;
}
void expect_like_reference(const Case& c, double tolerance, const char* what) {
  const auto want = reference::depth_mix(rows(c), doubles(c.norm), doubles(c.query), c.tokens, kEps);
  const std::vector<Array> got = forward(c);
  EXPECT_LE(kbtest::relative_error(got[0], kbtest::array(KB_F64, {c.tokens, c.d}, want.h)), tolerance) << what << ", h";
  EXPECT_LE(kbtest::relative_error(got[1], kbtest::array(KB_F64, {c.tokens, int64_t(c.v.size())}, want.p)), tolerance)
      << what << ", weights";
  expect_gradients(backward(c), expected_gradients(c), tolerance, what);
}

TEST(DepthMix, EqualsTheReferenceOverOddSizes) {
  for (int n : {1, 2, 5, 14})
    for (int64_t tokens : {1, 7, 17, 65})
      for (int64_t d : {1, 3, 8, 24, 33, 301}) {
        const std::string what = kb::text(n, " sources, ", tokens, " tokens, ", d, " channels");
        expect_like_reference(made(KB_F64, n, tokens, d), 1e-12, what.c_str());
        expect_like_reference(made(KB_F32, n, tokens, d, 1, 0.3), 2e-5, what.c_str());
      }
}

TEST(DepthMix, EqualsTheReferenceForTinyAndHugeSources) {
  for (double scale : {1e-8, 1e-3, 1e3, 1e8}) {
    const std::string what = kb::text("scale ", scale);
    expect_like_reference(made(KB_F64, 5, 7, 33, scale), 1e-11, what.c_str());
    expect_like_reference(made(KB_F32, 5, 7, 33, scale, 0.3), 2e-5, what.c_str());
  }
}

TEST(DepthMix, StaysFiniteWhenOneLogitRulesAll) {
  const Case c = made(KB_F32, 5, 7, 33, 1, 1e4);
  for (const Array& a : forward(c))
    for (int64_t i = 0; i < a.size(); ++i) ASSERT_TRUE(std::isfinite(a.at(i)));
  for (const Array& a : backward(c))
    for (int64_t i = 0; i < a.size(); ++i) ASSERT_TRUE(std::isfinite(a.at(i)));
}

TEST(DepthMix, IsTheMeanOfTheSourcesWithAZeroQuery) {
  const Case c = made(KB_F64, 4, 5, 9, 1, 0);
  const std::vector<Array> out = forward(c);
  for (int64_t i = 0; i < out[1].size(); ++i) EXPECT_DOUBLE_EQ(out[1].at(i), 0.25);
  EXPECT_NEAR(out[0].at(7), (c.v[0].at(7) + c.v[1].at(7) + c.v[2].at(7) + c.v[3].at(7)) / 4, 1e-15);
}

TEST(DepthMix, ReturnsZeroSourcesAsZero) {
  Case c = made(KB_F32, 3, 4, 8);
  for (Array& a : c.v) std::fill(a.bytes.begin(), a.bytes.end(), char(0));
  for (int64_t i = 0; i < c.tokens * c.d; ++i) EXPECT_EQ(forward(c)[0].at(i), 0);
}

TEST(DepthMix, ReferenceGradientsAreThoseOfCentralDifferences) {
  const Case c = made(KB_F64, 3, 2, 6);
  const std::vector<Array> want = expected_gradients(c);
  const double step = 1e-6;
  auto loss = [&](const Case& x) {
    const auto h = reference::depth_mix(rows(x), doubles(x.norm), doubles(x.query), x.tokens, kEps).h;
    double s = 0;
    for (size_t i = 0; i < h.size(); ++i) s += h[i] * x.dh.at(int64_t(i));
    return s;
  };
  for (size_t k = 0; k < want.size(); ++k)
    for (int64_t i = 0; i < want[k].size(); ++i) {
      Case up = c, down = c;
      auto operand = [&](Case& x) -> Array& { return k < x.v.size() ? x.v[k] : k == x.v.size() ? x.norm : x.query; };
      operand(up).set(i, operand(up).at(i) + step), operand(down).set(i, operand(down).at(i) - step);
      EXPECT_NEAR((loss(up) - loss(down)) / (2 * step), want[k].at(i), 1e-8) << "input " << k << ", element " << i;
    }
}

TEST(DepthMix, AddsToGradientsWhenAsked) {
  const Case c = made(KB_F64, 3, 20, 9);
  std::vector<Array> out = gradients(c), want = backward(c);
  for (size_t k = 0; k < out.size(); ++k)
    for (int64_t i = 0; i < out[k].size(); ++i)
      out[k].set(i, double(k) + 1), want[k].set(i, want[k].at(i) + double(k) + 1);
  kbtest::Options o;
  o.accumulate = 0b11111;
  kbtest::run(kb::kernel_table<DepthMixBackwardCpu>(), kAttrs, inputs(c, true), out, o);
  for (size_t k = 0; k < out.size(); ++k) EXPECT_LE(kbtest::relative_error(out[k], want[k]), 1e-15) << k;
}

TEST(DepthMix, LeavesUnwantedOutputsAlone) {
  const Case c = made(KB_F64, 3, 20, 9);
  const std::vector<Array> want = backward(c);
  for (uint64_t mask : {0b00010u, 0b11000u, 0b01000u, 0b10000u, 0b00111u, 0b11111u}) {
    std::vector<Array> out = gradients(c);
    kbtest::Options o;
    o.unwanted = mask;
    kbtest::run(kb::kernel_table<DepthMixBackwardCpu>(), kAttrs, inputs(c, true), out, o);
    for (size_t k = 0; k < out.size(); ++k)
      if (!(mask >> k & 1)) {
        EXPECT_EQ(out[k].bytes, want[k].bytes) << "mask " << mask << ", output " << k;
      }
  }
  kbtest::Options o;
  o.unwanted = 2;  // the weights
  EXPECT_EQ(forward(c, o)[0].bytes, forward(c)[0].bytes);
}

TEST(DepthMix, GivesTheSameBitsOnAnyNumberOfThreads) {
  const Case c = made(KB_F32, 5, 100, 33);
  kbtest::Options one, many;
  one.threads = 1, many.threads = 7;
  const std::vector<Array> a = backward(c, one), b = backward(c, many);
  for (size_t k = 0; k < a.size(); ++k) EXPECT_EQ(a[k].bytes, b[k].bytes) << k;
  EXPECT_EQ(forward(c, one)[0].bytes, forward(c, many)[0].bytes);
}

TEST(DepthMix, CountsOnlyRowsInsideTheExtent) {
  Case whole = made(KB_F64, 3, 12, 9), used = made(KB_F64, 3, 20, 9);
  auto copy = [](const Array& from, Array& to) { std::copy(from.bytes.begin(), from.bytes.end(), to.bytes.begin()); };
  for (size_t i = 0; i < 3; ++i)
    copy(whole.v[i], used.v[i]), used.v[i].type.extent = 1;  // rows 12 .. 20 hold other numbers
  copy(whole.dh, used.dh);
  used.dh.type.extent = 1;
  kbtest::Options o;
  o.extents = {0, 12};
  const std::vector<Array> want = backward(whole), got = backward(used, o);
  for (size_t k = 3; k < 5; ++k) EXPECT_LE(kbtest::relative_error(got[k], want[k]), 1e-14) << k;
  const Array h = forward(whole)[0], part = forward(used, o)[0];
  for (int64_t i = 0; i < h.size(); ++i) EXPECT_EQ(part.at(i), h.at(i));
}

TEST(DepthMix, RefusesMoreSourcesThanABackwardOpCanReturn) {
  std::vector<kb_type> in(17);
  for (kb_type& t : in) t.dtype = KB_F32, t.rank = 2, t.shape[0] = 4, t.shape[1] = 8;
  in[15].rank = in[16].rank = 1, in[15].shape[0] = in[16].shape[0] = 8;
  kb_type out[KB_MAX_OUT]{};
  kb_infer c{};
  c.in = in.data(), c.n_in = 17, c.out = out;
  kb::Infer s{&c};
  EXPECT_THROW(DepthMix{}.infer(s), kb::Error);
  c.in = in.data() + 1, c.n_in = 16, c.n_out = 0;
  EXPECT_NO_THROW(DepthMix{}.infer(s));
  EXPECT_EQ(c.n_out, 2u);
  EXPECT_EQ(out[1].shape[1], 14);
}

TEST(DepthMix, KeepsWeightsWideForNarrowSources) {
  kb_type in[4]{};
  for (int i = 0; i < 2; ++i)
    in[i].dtype = KB_BF16, in[i].rank = 2, in[i].shape[0] = 4, in[i].shape[1] = 8, in[i].extent = 3;
  for (int i = 2; i < 4; ++i) in[i].dtype = KB_F32, in[i].rank = 1, in[i].shape[0] = 8;
  kb_type out[KB_MAX_OUT]{};
  kb_infer c{};
  c.in = in, c.n_in = 4, c.out = out;
  kb::Infer s{&c};
  DepthMix{}.infer(s);
  EXPECT_EQ(out[0].dtype, uint32_t(KB_BF16));
  EXPECT_EQ(out[1].dtype, uint32_t(KB_F32));
  EXPECT_EQ(out[0].extent, 3u);
  EXPECT_EQ(out[1].extent, 3u);
}

}  // namespace
