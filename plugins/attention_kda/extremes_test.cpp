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
