// The kernel against adamw_reference.h. In double both differ by rounding alone (1e-15 a step); in float the kernel
// rounds each operation while the reference computes in double and rounds at the end: a few 6e-8 of each summand.
#include "adamw_reference.h"

#include <gtest/gtest.h>

#include "tests/support/kernel_call.h"

namespace {
using kbtest::Array;

struct State {
  Array w, m, v;
};
void step(const AdamwStep& op, State& s, const Array& g, double lr, double t, const kbtest::Options& o = {},
          const Array* scale = nullptr) {
  const uint32_t dtype = s.w.type.dtype;
  const Array rate = kbtest::array(dtype, {}, {lr}), count = kbtest::array(dtype, {}, {t});
  std::vector<Array> out{s.w, s.m, s.v};
  const std::vector<kb_attr> attrs{kb::default_attr("beta1", op.beta1), kb::default_attr("beta2", op.beta2),
                                   kb::default_attr("eps", op.eps), kb::default_attr("decay", op.decay),
                                   kb::default_attr("copy", int64_t(0))};
  std::vector<const Array*> in{&s.w, &g, &s.m, &s.v, &rate, &count};
  if (scale) in.push_back(scale);
  kbtest::run(kb::kernel_table<AdamwCpu>(), attrs, in, out, o);
  s = {out[0], out[1], out[2]};
}
kbtest::Options on_threads(int32_t n) {
  kbtest::Options o;
  o.threads = n;
  return o;
}
template <class T>
void expect_like_reference(uint32_t dtype, int64_t n, double scale, double tolerance) {
  AdamwStep op;
  State s{kbtest::normal(dtype, {n}, 1), kbtest::array(dtype, {n}), kbtest::array(dtype, {n})}, r = s;
  for (int t = 1; t <= 5; ++t) {
    const Array g = kbtest::normal(dtype, {n}, uint64_t(10 + t), scale);
    step(op, s, g, 1e-2, t);
    adamw_reference<T>(op, double(T(1e-2)), t, g.data<T>(), n, r.w.data<T>(), r.m.data<T>(), r.v.data<T>());
  }
  EXPECT_LE(kbtest::relative_error(s.w, r.w), tolerance) << n << " elements, gradients of " << scale;
  EXPECT_LE(kbtest::relative_error(s.m, r.m), tolerance);
  EXPECT_LE(kbtest::relative_error(s.v, r.v), tolerance);
}

TEST(AdamwCpu, EqualsTheReferenceAtEverySize) {
  for (int64_t n : {1, 3, 7, 8, 15, 16, 17, 63, 64, 65, 1000, 50001}) {
    expect_like_reference<double>(KB_F64, n, 1, 1e-14);
    expect_like_reference<float>(KB_F32, n, 1, 1e-6);
  }
}

TEST(AdamwCpu, EqualsTheReferenceForTinyAndHugeGradients) {
  for (double scale : {1e-12, 1e-6, 1e6, 1e12}) {
    expect_like_reference<double>(KB_F64, 65, scale, 1e-14);
    expect_like_reference<float>(KB_F32, 65, scale, 1e-6);
  }
}

TEST(AdamwCpu, ScalesTheGradientItself) {
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (int64_t n : {1, 17, 1000}) {
      AdamwStep op;
      const Array g = kbtest::normal(dtype, {n}, 2), scale = kbtest::array(dtype, {}, {0.3});
      Array scaled = g;
      kb::floats(dtype, [&]<class T>() {
        for (int64_t i = 0; i < n; ++i) scaled.data<T>()[i] = T(scale.at(0)) * g.data<T>()[i];
      });
      State a{kbtest::normal(dtype, {n}, 1), kbtest::array(dtype, {n}), kbtest::array(dtype, {n})}, b = a;
      step(op, a, scaled, 1e-2, 3);
      step(op, b, g, 1e-2, 3, {}, &scale);
      EXPECT_EQ(a.w.bytes, b.w.bytes) << n;
      EXPECT_EQ(a.v.bytes, b.v.bytes) << n;
    }
}

TEST(AdamwCpu, FirstStepMovesByTheRateWhateverTheGradient) {
  AdamwStep op;
  op.decay = 0;
  State s{kbtest::array(KB_F64, {3}), kbtest::array(KB_F64, {3}), kbtest::array(KB_F64, {3})};
  step(op, s, kbtest::array(KB_F64, {3}, {1e-3, -5, 1e3}), 0.01, 1);
  EXPECT_NEAR(s.w.at(0), -0.01, 1e-6);
  EXPECT_NEAR(s.w.at(1), 0.01, 1e-9);
  EXPECT_NEAR(s.w.at(2), -0.01, 1e-9);
}

TEST(AdamwCpu, DecaysWithoutAGradient) {
  AdamwStep op;
  State s{kbtest::array(KB_F64, {1}, {2}), kbtest::array(KB_F64, {1}), kbtest::array(KB_F64, {1})};
  step(op, s, kbtest::array(KB_F64, {1}), 0.5, 1);
  EXPECT_DOUBLE_EQ(s.w.at(0), 2 - 0.5 * 0.1 * 2);
}

TEST(AdamwCpu, GivesTheSameBitsOnAnyNumberOfThreads) {
  // Pieces end on multiples of a vector only by chance; the scalar tail may round differently where FMA is used, hence
  // the size: two pieces of 1 << 15 elements.
  const int64_t n = 1 << 16;
  AdamwStep op;
  State a{kbtest::normal(KB_F32, {n}, 1), kbtest::array(KB_F32, {n}), kbtest::array(KB_F32, {n})}, b = a;
  const Array g = kbtest::normal(KB_F32, {n}, 2);
  step(op, a, g, 0.01, 1, on_threads(1));
  step(op, b, g, 0.01, 1, on_threads(2));
  EXPECT_EQ(a.w.bytes, b.w.bytes);
}

TEST(AdamwStep, RefusesAParameterInANarrowType) {
  kb_type in[6]{};
  for (int i = 0; i < 4; ++i) in[i].rank = 1, in[i].shape[0] = 4, in[i].dtype = KB_F32;
  in[4].dtype = in[5].dtype = KB_F32, in[0].dtype = KB_BF16;
  kb_type out[KB_MAX_OUT]{};
  kb_infer c{};
  c.in = in, c.n_in = 6, c.out = out;
  kb::Infer s{&c};
  EXPECT_THROW(AdamwStep{}.infer(s), kb::Error);
  in[0].dtype = KB_F32, c.n_out = 0;
  EXPECT_NO_THROW(AdamwStep{}.infer(s));
  EXPECT_EQ(c.n_out, 3u);
  EXPECT_EQ(c.alias[0], 0);
  EXPECT_EQ(c.alias[1], 2);
  EXPECT_EQ(c.alias[2], 3);
}

}  // namespace
