// The CUDA kernel against adamw_reference.h. The kernel rounds each operation while the reference computes in double and
// rounds at the end: a few 6e-8 of each summand.
#include "adamw_cuda_kernels.h"

#include <gtest/gtest.h>

#include "adamw_reference.h"
#include "tests/support/device_call.h"

namespace {
using kbtest::Array;

struct State {
  Array w, m, v;
};
void step(const AdamwStep& op, State& s, const Array& g, double lr, double t) {
  const Array rate = kbtest::array(KB_F32, {}, {lr}), count = kbtest::array(KB_F32, {}, {t});
  std::vector<Array> out{s.w, s.m, s.v};
  const std::vector<kb_attr> attrs{kb::default_attr("beta1", op.beta1), kb::default_attr("beta2", op.beta2),
                                   kb::default_attr("eps", op.eps), kb::default_attr("decay", op.decay),
                                   kb::default_attr("copy", int64_t(0))};
  kbtest::run_device(kb::kernel_table<AdamwCuda>(), attrs, {&s.w, &g, &s.m, &s.v, &rate, &count}, out);
  s = {out[0], out[1], out[2]};
}
double worst = 0;
void expect_like_reference(int64_t n, double scale, double first_step = 1) {
  AdamwStep op;
  State s{kbtest::normal(KB_F32, {n}, 1), kbtest::array(KB_F32, {n}), kbtest::array(KB_F32, {n})}, r = s;
  for (int k = 0; k < 5; ++k) {
    const Array g = kbtest::normal(KB_F32, {n}, uint64_t(10 + k), scale);
    step(op, s, g, 1e-2, first_step + k);
    adamw_reference<float>(op, double(1e-2f), first_step + k, g.data<float>(), n, r.w.data<float>(), r.m.data<float>(),
                           r.v.data<float>());
  }
  for (auto [got, want] : {std::pair(&s.w, &r.w), {&s.m, &r.m}, {&s.v, &r.v}}) {
    const double error = kbtest::relative_error(*got, *want);
    worst = std::max(worst, error);
    EXPECT_LE(error, 1e-6) << n << " elements, gradients of " << scale;
  }
}

TEST(AdamwCuda, EqualsTheReferenceAtEverySize) {
  KB_NEEDS_DEVICE();
  for (int64_t n : {1, 3, 4, 7, 8, 63, 64, 65, 1000, 1024, 50001, 3000000}) expect_like_reference(n, 1);
  printf("largest relative error %.2e\n", worst);
}

TEST(AdamwCuda, EqualsTheReferenceForTinyAndHugeGradients) {
  KB_NEEDS_DEVICE();
  for (double scale : {1e-12, 1e-6, 1e6, 1e12}) expect_like_reference(65, scale), expect_like_reference(64, scale);
  expect_like_reference(64, 1, 100000);
}

TEST(AdamwCuda, ScalesTheGradientAndCopiesTheWeightItself) {
  KB_NEEDS_DEVICE();
  for (int64_t n : {1, 3, 64, 1001, 50000}) {
    AdamwStep op;
    const Array g = kbtest::normal(KB_F32, {n}, 2), scale = kbtest::array(KB_F32, {}, {0.3}),
                rate = kbtest::array(KB_F32, {}, {1e-2}), count = kbtest::array(KB_F32, {}, {3});
    Array scaled = g;
    for (int64_t i = 0; i < n; ++i) scaled.data<float>()[i] = scale.data<float>()[0] * g.data<float>()[i];
    State a{kbtest::normal(KB_F32, {n}, 1), kbtest::array(KB_F32, {n}), kbtest::array(KB_F32, {n})}, b = a;
    step(op, a, scaled, 1e-2, 3);
    std::vector<Array> out{b.w, b.m, b.v, kbtest::array(KB_BF16, {n})};
    kbtest::run_device(
        kb::kernel_table<AdamwCuda>(),
        {kb::default_attr("beta1", op.beta1), kb::default_attr("beta2", op.beta2), kb::default_attr("eps", op.eps),
         kb::default_attr("decay", op.decay), kb::default_attr("copy", int64_t(KB_BF16))},
        {&b.w, &g, &b.m, &b.v, &rate, &count, &scale}, out);
    EXPECT_EQ(a.w.bytes, out[0].bytes) << n;
    EXPECT_EQ(a.m.bytes, out[1].bytes) << n;
    EXPECT_EQ(a.v.bytes, out[2].bytes) << n;
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(out[3].data<uint16_t>()[i], kbtest::to_bf16(out[0].at(i))) << i;
  }
}

TEST(AdamwCuda, FirstStepMovesByTheRateWhateverTheGradient) {
  KB_NEEDS_DEVICE();
  AdamwStep op;
  op.decay = 0;
  State s{kbtest::array(KB_F32, {4}), kbtest::array(KB_F32, {4}), kbtest::array(KB_F32, {4})};
  step(op, s, kbtest::array(KB_F32, {4}, {1e-3, -5, 1e3, 1}), 0.01, 1);
  EXPECT_NEAR(s.w.at(0), -0.01, 1e-6);
  EXPECT_NEAR(s.w.at(1), 0.01, 1e-8);
  EXPECT_NEAR(s.w.at(2), -0.01, 1e-8);
}

}  // namespace
