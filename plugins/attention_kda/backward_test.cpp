// `kda_backward`: the reverse of the recurrence against central differences, then the kernels against it.
#include "kda_test_case.h"

namespace kda::test {
namespace {

TEST(KdaReference, BackwardIsTheDerivativeOfForward) {
  const Operands x = make({.H = 2, .K = 3, .V = 4, .cu = {0, 0, 5, 6}, .g_low = -2}, KB_F64);
  const auto d = expected<ChunkBackward>(x);
  auto loss = [](const Operands& y) {
    const auto out = expected<Recurrent>(y);
    double sum = 0;
    for (int64_t i = 0; i < out[0].size(); ++i) sum += out[0].at(i) * y.d_o.at(i);
    for (int64_t i = 0; i < out[1].size(); ++i) sum += out[1].at(i) * y.d_state.at(i);
    return sum;
  };
  Array Operands::*const wrt[] = {&Operands::q, &Operands::k,    &Operands::v,
                                  &Operands::g, &Operands::beta, &Operands::s0};
  for (size_t o = 0; o < 6; ++o) {
    const double h = 1e-5;
    for (int64_t i = 0; i < d[o].size(); ++i) {
      Operands up = x, down = x;
      (up.*wrt[o]).set(i, (x.*wrt[o]).at(i) + h), (down.*wrt[o]).set(i, (x.*wrt[o]).at(i) - h);
      // Differences of numbers of order ten, 1e-15 each, over 2e-5; and h^2.
      EXPECT_NEAR(d[o].at(i), (loss(up) - loss(down)) / (2 * h), 2e-8) << "output " << o << " element " << i;
    }
  }
}

template <class Kernel>
struct KdaBackward : testing::Test {};
using Kernels = testing::Types<ChunkBackward, ChunkRescaledBackward>;
TYPED_TEST_SUITE(KdaBackward, Kernels);

TYPED_TEST(KdaBackward, EqualsTheReverseRecurrenceAtEveryLength) {
  for (int64_t T = 1; T <= 130; ++T) {
    const Case c{.H = 1, .K = 16, .V = 16, .cu = {0, double(T)}, .g_low = T % 2 ? -5.0 : -0.5};
    for (uint32_t t : {KB_F32, KB_F64}) expect_reference<TypeParam>(c, t, kb::text("length ", T), 2);
  }
}

TYPED_TEST(KdaBackward, HandlesWidthsThatAreNoMultipleOfAVector) {
  for (auto [K, V] :
       {std::pair<int64_t, int64_t>{6, 6}, {8, 6}, {33, 33}, {1, 1}, {16, 48}, {64, 8}, {5, 70}, {128, 128}, {33, 17}})
    for (uint32_t t : {KB_F32, KB_F64})
      expect_reference<TypeParam>({.K = K, .V = V, .cu = {0, 37}}, t, kb::text("K ", K, " V ", V), 2);
}

TYPED_TEST(KdaBackward, ManyDocumentsEmptyOnesAndUnusedTokens) {
  const Case c{.H = 3, .cu = {0, 0, 1, 1, 18, 83, 240, 240}, .tokens = 250};
  for (uint32_t t : {KB_F32, KB_F64}) expect_reference<TypeParam>(c, t, "documents", 2);
  const auto out = run<TypeParam>(make(c, KB_F32));
  for (size_t o = 0; o < 5; ++o) {
    const int64_t width = out[o].size() / 250;
    for (int64_t i = 240 * width; i < out[o].size(); ++i) EXPECT_EQ(out[o].at(i), 0);
  }
}

TYPED_TEST(KdaBackward, TakesAbsentOperandsForZero) {
  for (int absent = 1; absent < 8; ++absent) {
    Operands x = make({.K = 16, .V = 8, .cu = {0, 70}}, KB_F64);
    if (absent & 1) x.s0 = kbtest::absent();
    if (absent & 2) x.d_o = kbtest::absent();
    if (absent & 4) x.d_state = kbtest::absent();
    expect_near(run<TypeParam>(x), expected<TypeParam>(x), 2e-13, kb::text("absent ", absent));
  }
}

TYPED_TEST(KdaBackward, ComputesAnySubsetOfTheGradients) {
  const Operands x = make({.K = 33, .V = 17, .cu = {0, 70}}, KB_F32);
  const auto all = run<TypeParam>(x);
  for (uint64_t absent = 0; absent < 64; ++absent) {
    const auto some = run<TypeParam>(x, unwanted(absent));
    for (size_t o = 0; o < 6; ++o)
      if (!(absent >> o & 1)) {
        EXPECT_EQ(some[o].bytes, all[o].bytes) << absent << " output " << o;
      }
  }
}

TYPED_TEST(KdaBackward, DoesNotDependOnTheNumberOfThreads) {
  const Operands x = make({.H = 3, .K = 16, .V = 16, .cu = {0, 40, 190}}, KB_F32);
  const auto one = run<TypeParam>(x, threads(1)), many = run<TypeParam>(x, threads(7));
  for (size_t o = 0; o < 6; ++o) EXPECT_EQ(one[o].bytes, many[o].bytes) << o;
}

}  // namespace
}  // namespace kda::test
