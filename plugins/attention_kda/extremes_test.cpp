// Gates at their extremes: finite, and equal to the recurrence in double, forward and backward.
#include "kda_test_case.h"

namespace kda::test {
namespace {

bool finite(const std::vector<Array>& out) {
  for (const Array& a : out)
    for (int64_t i = 0; i < a.size(); ++i)
      if (!std::isfinite(a.at(i))) return false;
  return true;
}

template <class F>
Operands with_decay(const Case& c, uint32_t dtype,
                    F&& log_decay) {  // log_decay(z), z normal with deviation 50, clipped there
  Operands x = make(c, dtype);
  const Array z = kbtest::normal(dtype, kb::shape_of(x.g.type), 77, 50);
  for (int64_t i = 0; i < x.g.size(); ++i) x.g.set(i, log_decay(std::max(-50.0, std::min(50.0, z.at(i)))));
  return x;
}
double bounded(double a_log, double z) { return -5 / (1 + std::exp(-std::exp(a_log) * z)); }
double softplus(double a_log, double z) { return -std::exp(a_log) * (z > 30 ? z : std::log1p(std::exp(z))); }

template <class Kernel>
void expect_right(const Operands& x, const std::string& what) {
  const auto got = run<Kernel>(x);
  EXPECT_TRUE(finite(got)) << Kernel::name << " " << what;
  // Gradients of fierce decays are small differences of numbers of order one: four times the tolerance.
  expect_near(got, expected<Kernel>(x), 4 * tolerance(x.q.type.dtype), Kernel::name + (" " + what));
}

TEST(KdaExtremes, BoundedGateSaturatesBothWays) {
  for (uint32_t t : {KB_F32, KB_F64})
    for (double a_log : {-8.0, 0.0, 4.0}) {
      const Operands x = with_decay({.K = 16, .V = 16, .cu = {0, 70}}, t, [&](double z) { return bounded(a_log, z); });
      const std::string what = kb::text("bounded, A_log ", a_log);
      expect_right<Recurrent>(x, what), expect_right<Chunk>(x, what), expect_right<ChunkRescaled>(x, what);
      expect_right<ChunkBackward>(x, what), expect_right<ChunkRescaledBackward>(x, what);
    }
}

TEST(KdaExtremes, EveryTokenAtTheFloorStaysFinite) {
  for (uint32_t t : {KB_F32, KB_F64}) {
    const Operands x = make({.K = 33, .V = 17, .cu = {0, 64}, .g_low = -5, .g_high = -5}, t);
    expect_right<Recurrent>(x, "floor"), expect_right<Chunk>(x, "floor"), expect_right<ChunkRescaled>(x, "floor");
    expect_right<ChunkBackward>(x, "floor"), expect_right<ChunkRescaledBackward>(x, "floor");
  }
}

TEST(KdaExtremes, LargeGradientsAtTheFloorDoNotOverflow) {  // what loss scaling gives
  Operands x = make({.K = 16, .V = 16, .cu = {0, 64}, .g_low = -5, .g_high = -4.9}, KB_F32);
  for (int64_t i = 0; i < x.d_o.size(); ++i) x.d_o.set(i, 65536 * x.d_o.at(i));
  expect_right<ChunkBackward>(x, "scaled"), expect_right<ChunkRescaledBackward>(x, "scaled");
}

TEST(KdaExtremes, SoftplusGateOfAnySizeIsRight) {
  for (uint32_t t : {KB_F32, KB_F64})
    for (double a_log : {-5.0, 0.0, std::log(16.0), 6.0}) {  // down to -50 exp(6) = -20000 a token
      Case c{.K = 16, .V = 16, .cu = {0, 70}};
      c.range_low = -INFINITY;
      const Operands x = with_decay(c, t, [&](double z) { return softplus(a_log, z); });
      const std::string what = kb::text("softplus, A_log ", a_log);
      expect_right<Recurrent>(x, what), expect_right<ChunkRescaled>(x, what),
          expect_right<ChunkRescaledBackward>(x, what);
    }
}

TEST(KdaExtremes, MildAndFierceDecaysMeetInOneChunk) {
  for (uint32_t t : {KB_F32, KB_F64})
    for (double low : {-0.01, -1.0, -20.0, -300.0}) {
      Case c{.K = 33, .V = 8, .cu = {0, 100}};
      c.range_low = -INFINITY;
      Operands x = make(c, t);
      for (int64_t i = 0; i < x.g.size(); ++i) x.g.set(i, i % 3 ? -0.01 : low);
      const std::string what = kb::text("decays -0.01 and ", low);
      expect_right<Recurrent>(x, what), expect_right<ChunkRescaled>(x, what),
          expect_right<ChunkRescaledBackward>(x, what);
    }
}

// dg as a gate sees it, times g: rounding of dg that fierce decays enlarge, though among all dg it is small. Every
// element is a sum of K or V products with some ten factors each, so single roundings add up to a few: eight for the
// whole tensor, and eight of sum |dg g| for a head's sum, which is the gradient of A_log of a softplus gate.
template <class Kernel>
void expect_right_through_gate(const Operands& x, const std::string& what) {
  const double tolerance = 8 * (x.g.type.dtype == KB_F64 ? 0x1p-53 : 0x1p-24);
  const Array got = run<Kernel>(x)[3], want = expected<Kernel>(x)[3];
  const int64_t H = x.g.type.shape[1], K = x.g.type.shape[2];
  std::vector<double> sum(size_t(H), 0.0), magnitude(size_t(H), 0.0);
  double error = 0, norm = 0;
  for (int64_t i = 0; i < want.size(); ++i) {
    const double g = x.g.at(i), e = (got.at(i) - want.at(i)) * g, right = want.at(i) * g;
    const auto h = size_t(i / K % H);
    sum[h] += e, magnitude[h] += std::fabs(right);
    error += e * e, norm += right * right;
  }
  EXPECT_LE(std::sqrt(error / norm), tolerance) << Kernel::name << " " << what;
  for (size_t h = 0; h < size_t(H); ++h)
    EXPECT_LE(std::fabs(sum[h]) / magnitude[h], tolerance) << Kernel::name << " " << what << ", head " << h;
}

TEST(KdaExtremes,
     DecaysNearTheFloorLoseNoDigits) {  // sixteen of them add up to -75, where a float has five digits left
  for (uint32_t t : {KB_F32, KB_F64})
    for (double low : {-5.0, -4.7})
      for (uint64_t seed : {1, 2, 3}) {
        const Operands x = make({.K = 16, .V = 16, .cu = {0, 64}, .g_low = low, .g_high = -4.69}, t, seed);
        expect_right_through_gate<ChunkBackward>(x, kb::text("decays from ", low, ", seed ", seed));
      }
}

TEST(KdaExtremes, FierceDecaysDoNotEnlargeTheRoundingOfMildOnes) {
  for (uint32_t t : {KB_F32, KB_F64})
    for (double low : {-10.0, -50.0, -300.0})
      for (uint64_t seed : {1, 2, 3}) {
        Case c{.K = 16, .V = 16, .cu = {0, 64}};
        c.range_low = -INFINITY;
        Operands x = make(c, t, seed);
        const std::string what = kb::text("decays of ", low, ", seed ", seed);
        for (int64_t i = 0; i < x.g.size(); ++i) x.g.set(i, i % 3 ? -0.01 : low);  // channels
        expect_right_through_gate<ChunkRescaledBackward>(x, what + " in a third of the channels");
        for (int64_t i = 0; i < x.g.size(); ++i) x.g.set(i, i / (c.H * c.K) % 5 ? -0.01 : low);  // tokens
        expect_right_through_gate<ChunkRescaledBackward>(x, what + " in every fifth token");
      }
}

TEST(KdaExtremes, WriteStrengthOfZeroAndOne) {
  for (double beta : {0.0, 1.0})
    for (uint32_t t : {KB_F32, KB_F64}) {
      Operands x = make({.K = 16, .V = 16, .cu = {0, 50}, .g_low = -0.1}, t);
      for (int64_t i = 0; i < x.beta.size(); ++i) x.beta.set(i, beta);
      const std::string what = kb::text("beta ", beta);
      expect_right<Recurrent>(x, what), expect_right<Chunk>(x, what), expect_right<ChunkRescaled>(x, what);
      expect_right<ChunkBackward>(x, what), expect_right<ChunkRescaledBackward>(x, what);
    }
}

}  // namespace
}  // namespace kda::test
