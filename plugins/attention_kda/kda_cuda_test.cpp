// The CUDA kernels of `kda` and `kda_backward` against the recurrence of reference.h in double.
#include <gtest/gtest.h>

#include "kda_test_case.h"
#include "kernels_cuda.h"
#include "tests/support/device_call.h"

namespace kda::test {
namespace {

template <class Kernel>
constexpr bool is_forward = std::is_same_v<typename Kernel::Op, KdaOp>;

// Operands as the op wants them: q, k, v, do in dtype, the rest wide.
Operands make_device(const Case& c, uint32_t dtype, uint64_t seed = 1) {
  Operands x = make(c, KB_F32, seed);
  x.q = convert(x.q, dtype), x.k = convert(x.k, dtype), x.v = convert(x.v, dtype), x.d_o = convert(x.d_o, dtype);
  return x;
}
std::vector<Array> outputs(const Operands& x, bool forward) {
  if (forward) {
    const kb_type& q = x.q.type;
    const int64_t V = x.v.type.shape[2], rows = x.slot.type.dtype ? x.s0.type.shape[0] : x.cu.type.shape[0] - 1;
    return {kbtest::array(q.dtype, kb::shape_of(x.v.type)), kbtest::array(KB_F32, {rows, q.shape[1], q.shape[2], V})};
  }
  std::vector<Array> o;
  for (const Array* a : {&x.q, &x.k, &x.v, &x.g, &x.beta})
    o.push_back(kbtest::array(a->type.dtype, kb::shape_of(a->type)));
  const kb_type& q = x.q.type;
  o.push_back(kbtest::array(KB_F32, {x.cu.type.shape[0] - 1, q.shape[1], q.shape[2], x.v.type.shape[2]}));
  return o;
}
template <class Kernel>
std::vector<Array> run_cuda(const Operands& x, const kbtest::Options& o = {}) {
  std::vector<Array> out = outputs(x, is_forward<Kernel>);
  kbtest::run_device(kb::kernel_table<Kernel>(), scale_of(x),
                     is_forward<Kernel> ? forward_inputs(x) : backward_inputs(x), out, o);
  return out;
}

// The largest relative error of each output over a test, printed at its end.
struct Worst {
  double at[6] = {};
  ~Worst() {
    if (const auto* t = testing::UnitTest::GetInstance()->current_test_info()) {
      std::printf("  %s.%s:", t->test_suite_name(), t->name());
      for (double e : at) std::printf(" %.2e", e);
      std::printf("\n");
    }
  }
};
template <class Kernel>
void expect_reference(const Operands& x, double tolerance, const std::string& what, Worst& worst) {
  const auto got = run_cuda<Kernel>(x), want = expected<Kernel>(x);
  double largest = 0;
  for (const Array& w : want) {
    double n = 0;
    for (int64_t i = 0; i < w.size(); ++i) n += w.at(i) * w.at(i);
    largest = std::max(largest, std::sqrt(n));
  }
  for (size_t i = 0; i < want.size(); ++i) {
    const double e = kbtest::relative_error(got[i], want[i],
                                            std::max((got[0].type.dtype == KB_BF16 ? 5e-2 : 1e-2) * largest, 1e-30));
    EXPECT_LE(e, tolerance) << Kernel::name << " " << what << ", output " << i;
    if (!(e <= worst.at[i])) worst.at[i] = e;
  }
}

template <uint32_t T, class K>
struct With {
  static constexpr uint32_t dtype = T;
  using Kernel = K;
  static constexpr bool tiled =
      !std::is_same_v<K, cuda::Recurrent> && !std::is_same_v<K, cuda::RecurrentBackward>;  // K = V = 64 or 128
  static constexpr bool dense = tiled && K::priority == 20;                                // mild decays only
  static constexpr int64_t smallest = tiled ? 64 : 16;                                     // a width that it takes
  static double tolerance() { return T == KB_F32 ? 2e-5 : tiled ? 1.2e-2 : 4e-3; }
};
template <class W>
struct KdaCuda : testing::Test {};
using Kernels = testing::Types<With<KB_F32, cuda::Recurrent>, With<KB_BF16, cuda::Recurrent>,
                               With<KB_F32, cuda::RecurrentBackward>, With<KB_BF16, cuda::RecurrentBackward>,
                               With<KB_BF16, cuda::Chunk>, With<KB_BF16, cuda::ChunkRescaled>,
                               With<KB_BF16, cuda::ChunkBackward>, With<KB_BF16, cuda::ChunkRescaledBackward>>;
TYPED_TEST_SUITE(KdaCuda, Kernels);

TYPED_TEST(KdaCuda, EqualsTheRecurrenceAtEveryLength) {
  KB_NEEDS_DEVICE();
  Worst worst;
  for (int64_t T = 1; T <= 130; T += T < 20 || (T > 60 && T < 68) ? 1 : 7) {
    const Case c{
        .H = 1, .K = TypeParam::smallest, .V = TypeParam::smallest, .cu = {0, double(T)}, .g_low = T % 2 ? -5.0 : -0.5};
    expect_reference<typename TypeParam::Kernel>(make_device(c, TypeParam::dtype), TypeParam::tolerance(),
                                                 kb::text("length ", T), worst);
  }
}
TYPED_TEST(KdaCuda, HandlesAnyWidth) {
  KB_NEEDS_DEVICE();
  Worst worst;
  for (auto [K, V] : {std::pair<int64_t, int64_t>{6, 6},
                      {33, 33},
                      {1, 1},
                      {16, 48},
                      {64, 8},
                      {5, 70},
                      {64, 64},
                      {128, 128},
                      {33, 17},
                      {256, 40},
                      {130, 256}}) {
    if (TypeParam::tiled && (K != V || K % 64)) continue;
    expect_reference<typename TypeParam::Kernel>(make_device({.K = K, .V = V, .cu = {0, 37}}, TypeParam::dtype),
                                                 TypeParam::tolerance(), kb::text("K ", K, " V ", V), worst);
  }
}
TYPED_TEST(KdaCuda, HandlesPackedDocumentsAndUnusedTokens) {
  KB_NEEDS_DEVICE();
  Worst worst;
  for (bool s0 : {true, false})
    for (int64_t D : {24, 64, 128}) {
      if (TypeParam::tiled && D % 64) continue;
      const Case c{.K = D, .V = D, .cu = {0, 0, 1, 1, 18, 99, 99, 164, 165}, .tokens = 171, .s0 = s0};
      const Operands x = make_device(c, TypeParam::dtype);
      expect_reference<typename TypeParam::Kernel>(x, TypeParam::tolerance(), kb::text("documents of width ", D),
                                                   worst);
      const auto out = run_cuda<typename TypeParam::Kernel>(x);
      for (size_t o = 0; o < (is_forward<typename TypeParam::Kernel> ? 1 : 5); ++o)
        for (int64_t i = 165 * (out[o].size() / 171); i < out[o].size(); ++i)
          ASSERT_EQ(out[o].at(i), 0) << "output " << o;
    }
}
TYPED_TEST(KdaCuda, GivesTheSameBitsAgainAndWithUnwantedOutputs) {
  KB_NEEDS_DEVICE();
  using K = typename TypeParam::Kernel;
  const Operands x = make_device({.H = 3, .K = 64, .V = 64, .cu = {0, 40, 190}}, TypeParam::dtype);
  const auto once = run_cuda<K>(x), again = run_cuda<K>(x);
  for (size_t o = 0; o < once.size(); ++o) EXPECT_EQ(once[o].bytes, again[o].bytes) << o;
  for (size_t o = 0; o < once.size(); ++o) {
    const auto only = run_cuda<K>(x, unwanted(~(uint64_t(1) << o)));
    EXPECT_EQ(once[o].bytes, only[o].bytes) << "only " << o;
    const auto without = run_cuda<K>(x, unwanted(uint64_t(1) << o));
    for (size_t i = 0; i < once.size(); ++i)
      if (i != o) {
        EXPECT_EQ(once[i].bytes, without[i].bytes) << "without " << o;
      }
  }
}
TYPED_TEST(KdaCuda, StaysRightAtExtremes) {
  KB_NEEDS_DEVICE();
  Worst worst;
  using K = typename TypeParam::Kernel;
  for (int64_t D : {16, 64, 128})
    for (auto [low, high] :
         {std::pair{0.0, 0.0}, {-5.0, -5.0}, {-5.0, -0.0}, {-0.05, -0.0}, {-100.0, -0.0}, {-2.0, -1.0}}) {
      if ((TypeParam::tiled && D % 64) || (TypeParam::dense && low < -5)) continue;
      Case c{.H = 1, .K = D, .V = D, .cu = {0, 70, 140}, .g_low = low, .g_high = high};
      if (low < -5) c.range_low = -INFINITY;
      Operands x = make_device(c, TypeParam::dtype);
      expect_reference<K>(x, TypeParam::tolerance(), kb::text("width ", D, " decays ", low, " .. ", high), worst);
      if (low < -5) {
        for (int64_t i = 0; i < x.g.size(); ++i) x.g.set(i, i % 3 ? -0.01 : i % 2 ? -20000.0 : -30.0);
        expect_reference<K>(x, TypeParam::tolerance(), kb::text("width ", D, " mixed decays"), worst);
      }
      for (double beta : {0.0, 1.0}) {
        for (int64_t i = 0; i < x.beta.size(); ++i) x.beta.set(i, beta);
        expect_reference<K>(x, TypeParam::tolerance(),
                            kb::text("width ", D, " decays ", low, " .. ", high, " beta ", beta), worst);
      }
    }
}
TYPED_TEST(KdaCuda, TakesAbsentGradients) {
  KB_NEEDS_DEVICE();
  using K = typename TypeParam::Kernel;
  if (is_forward<K>) return;
  Worst worst;
  for (int64_t D : {TypeParam::tiled ? 64 : 40, 128})
    for (int which : {0, 1}) {
      Operands x = make_device({.K = D, .V = D, .cu = {0, 40, 110}}, TypeParam::dtype);
      (which ? x.d_o : x.d_state) = kbtest::absent();
      expect_reference<K>(x, TypeParam::tolerance(), which ? "no do" : "no dstate", worst);
    }
}
TYPED_TEST(KdaCuda, ContinuesTheSlotsItIsGivenAndNoOthers) {
  KB_NEEDS_DEVICE();
  using K = typename TypeParam::Kernel;
  if constexpr (is_forward<K>)
    for (int64_t D : {16, 64, 128}) {
      if (TypeParam::tiled && D % 64) continue;
      const Case c{.K = D, .V = D, .cu = {0, 30, 100, 100, 140}, .slot = {4, 0, -1, 2}, .slots = 6};
      const Operands x = make_device(c, TypeParam::dtype);
      const auto got = run_cuda<K>(x), want = expected<K>(x);
      const int64_t matrix = c.H * c.K * c.V;
      for (int64_t slot : {1, 3, 5})
        for (int64_t i = 0; i < matrix; ++i) ASSERT_EQ(got[1].at(slot * matrix + i), x.s0.at(slot * matrix + i));
      for (size_t o : {0, 1})
        EXPECT_LE(kbtest::relative_error(got[o], want[o]), TypeParam::tolerance()) << D << " output " << o;
    }
}
// More heads than half of the multiprocessors: blocks take all columns of a state.
TYPED_TEST(KdaCuda, HandlesManyHeads) {
  KB_NEEDS_DEVICE();
  Worst worst;
  if (!TypeParam::tiled) return;
  const Case c{.H = 67, .K = 128, .V = 128, .cu = {0, 66, 66, 131}};
  expect_reference<typename TypeParam::Kernel>(make_device(c, TypeParam::dtype), TypeParam::tolerance(), "67 heads",
                                               worst);
}

// Few heads and long documents: these are cut into segments that are walked at once. Keys turn slowly in planes and decays are
// low, so that what a segment makes of a state is far from zero, from its diagonal and from its transpose.
Operands make_long(const Case& c) {
  Operands x = make_device(c, KB_BF16);
  for (int64_t i = 0; i < x.beta.size(); ++i) x.beta.set(i, 0.3);
  for (int64_t i = 0; i < x.g.size(); ++i) x.g.set(i, 1e-4 * x.g.at(i));
  for (int64_t i = 0; i < x.k.size(); ++i) x.k.set(i, 0);
  for (int64_t t = 0, T = x.k.type.shape[0]; t < T; ++t)
    for (int64_t h = 0; h < c.H; ++h) {
      const int64_t plane = (t + h) % (c.K / 2), at = (t * c.H + h) * c.K + 2 * plane;
      x.k.set(at, std::cos(double(t) / 1024)), x.k.set(at + 1, std::sin(double(t) / 1024));
    }
  return x;
}
TYPED_TEST(KdaCuda, CutsLongDocuments) {
  KB_NEEDS_DEVICE();
  using K = typename TypeParam::Kernel;
  if (!TypeParam::tiled) return;
  Worst worst;
  std::vector<double> room{0, 5000, 5000, 9000};
  while (room.size() < 65) room.push_back(9000);
  for (const Case& c : {Case{.H = 1, .K = 64, .V = 64, .cu = {0, 8200}},
                        Case{.H = 2, .K = 64, .V = 64, .cu = room, .tokens = 9010, .s0 = false},
                        Case{.H = 1, .K = 128, .V = 128, .cu = {0, 0, 4100, 4101, 6300}}})
    expect_reference<K>(make_long(c), TypeParam::tolerance(), kb::text("length ", c.cu.back(), " heads ", c.H), worst);
}
TYPED_TEST(KdaCuda, CutsToTheSameBitsAgainWhateverIsWanted) {
  KB_NEEDS_DEVICE();
  using K = typename TypeParam::Kernel;
  if (!TypeParam::tiled) return;
  const Operands x = make_long({.H = 3, .K = 128, .V = 128, .cu = {0, 5000, 8300}});
  const auto once = run_cuda<K>(x);
  for (size_t o = 0; o < once.size(); ++o) {
    const auto only = run_cuda<K>(x, unwanted(~(uint64_t(1) << o))),
               without = run_cuda<K>(x, unwanted(uint64_t(1) << o));
    EXPECT_EQ(once[o].bytes, only[o].bytes) << "only " << o;
    for (size_t i = 0; i < once.size(); ++i)
      if (i != o) {
        EXPECT_EQ(once[i].bytes, without[i].bytes) << i << " without " << o;
      }
  }
}
// A head of an array [tokens, heads, ..] or, for states, [documents, heads, ..].
Array head_of(const Array& a, int64_t h) {
  kb::Shape shape = kb::shape_of(a.type);
  const int64_t heads = shape.at[1], each = a.size() / shape.at[0] / heads;
  shape.at[1] = 1;
  Array one = kbtest::array(a.type.dtype, shape);
  one.type.lo = a.type.lo, one.type.hi = a.type.hi;
  for (int64_t r = 0; r < shape.at[0]; ++r)
    for (int64_t i = 0; i < each; ++i) one.set(r * each + i, a.at((r * heads + h) * each + i));
  return one;
}
// So many heads that a block has all columns of a state, and so long documents that these are cut: as each head alone.
TYPED_TEST(KdaCuda, CutsLongDocumentsOfManyHeads) {
  KB_NEEDS_DEVICE();
  using K = typename TypeParam::Kernel;
  if (!TypeParam::tiled) return;
  for (const Case& c : {Case{.H = 34, .K = 128, .V = 128, .cu = {0, 3100, 4200}},
                        Case{.H = 23, .K = 128, .V = 128, .cu = {0, 5000, 8000, 8200}}}) {
    const Operands x = make_long(c);
    const auto all = run_cuda<K>(x);
    for (const int64_t h : {int64_t(0), c.H - 1}) {
      Operands one = x;
      for (Array* a : {&one.q, &one.k, &one.v, &one.g, &one.beta, &one.s0, &one.d_o, &one.d_state}) *a = head_of(*a, h);
      const auto alone = run_cuda<K>(one);
      for (size_t o = 0; o < all.size(); ++o)
        EXPECT_LE(kbtest::relative_error(head_of(all[o], h), alone[o], 1e-30), TypeParam::tolerance())
            << c.H << " heads, head " << h << ", output " << o;
    }
  }
}
// Prompts that continue states in place, as the host serves them: nothing but the slots of documents with tokens changes.
TYPED_TEST(KdaCuda, CutsLongPromptsOfSlots) {
  KB_NEEDS_DEVICE();
  using K = typename TypeParam::Kernel;
  if constexpr (is_forward<K> && TypeParam::tiled) {
    const Case c{.H = 1, .K = 64, .V = 64, .cu = {0, 3300, 3300, 8000}, .slot = {4, -1, 2}, .slots = 6};
    const Operands x = make_long(c);
    kbtest::Options o;
    o.in_place = {{1, 6}};
    const auto got = run_cuda<K>(x, o), want = expected<K>(x);
    for (size_t i : {0, 1})
      EXPECT_LE(kbtest::relative_error(got[i], want[i]), TypeParam::tolerance()) << "output " << i;
    const int64_t matrix = c.K * c.V;
    for (int64_t slot : {0, 1, 3, 5})
      for (int64_t i = 0; i < matrix; ++i) ASSERT_EQ(got[1].at(slot * matrix + i), x.s0.at(slot * matrix + i)) << slot;
  }
}

// As a trainer calls: room for 64 documents, few used, nothing but o or the gradients of the operands wanted.
TYPED_TEST(KdaCuda, HandlesRoomForMoreDocuments) {
  KB_NEEDS_DEVICE();
  using K = typename TypeParam::Kernel;
  Case c{.H = 2, .K = 128, .V = 128, .cu = {0, 50, 120, 150}, .s0 = false};
  while (c.cu.size() < 65) c.cu.push_back(150);
  Operands x = make_device(c, TypeParam::dtype);
  x.d_state = kbtest::absent();
  const auto all = run_cuda<K>(x), got = run_cuda<K>(x, unwanted(is_forward<K> ? 2 : 32)), want = expected<K>(x);
  for (size_t o = 0; o < (is_forward<K> ? 1u : 5u); ++o) {
    EXPECT_LE(kbtest::relative_error(got[o], want[o]), TypeParam::tolerance()) << "output " << o;
    EXPECT_EQ(got[o].bytes, all[o].bytes) << "output " << o;
  }
}

std::string reason(const kb_kernel* k, const Operands& x) {
  std::vector<Array> out = outputs(x, true);
  try {
    kbtest::run_device(k, scale_of(x), forward_inputs(x), out);
  } catch (const kb::Error& e) {
    return e.what();
  }
  return "";
}
TEST(KdaCudaSupports, DeclinesInASentence) {
  KB_NEEDS_DEVICE();
  const Case wide{.K = 64, .V = 64};
  const kb_kernel *chunk = kb::kernel_table<cuda::Chunk>(), *rescaled = kb::kernel_table<cuda::ChunkRescaled>();
  Case fierce = wide;
  fierce.range_low = -INFINITY;
  EXPECT_EQ(reason(chunk, make_device(fierce, KB_BF16)),
            "wants a log decay of at least -5 (80 / 16 tokens) but the decay gives down to -inf");
  EXPECT_EQ(reason(rescaled, make_device(fierce, KB_BF16)), "");
  EXPECT_EQ(reason(rescaled, make_device(wide, KB_F32)), "wants bf16 but got f32");
  EXPECT_EQ(reason(rescaled, make_device({.K = 64, .V = 128}, KB_BF16)),
            "wants keys and values of 64 or of 128 elements but got 64 and 128");
  const Case decode{.K = 64, .V = 64, .cu = {0, 1, 2}, .slot = {1, 0}, .slots = 2};
  EXPECT_EQ(reason(chunk, make_device(decode, KB_BF16)),
            "wants more than 8 tokens a sequence but got 2 tokens for 2 sequences");
  EXPECT_EQ(reason(kb::kernel_table<cuda::Recurrent>(), make_device(decode, KB_BF16)), "");
  EXPECT_EQ(reason(kb::kernel_table<cuda::Recurrent>(), make_device({.K = 257, .V = 8}, KB_F32)),
            "wants keys of at most 256 elements but got 257");
}

}  // namespace
}  // namespace kda::test
