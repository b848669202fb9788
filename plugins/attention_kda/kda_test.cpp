// The forward kernels of `kda` against the recurrence of reference.h, and the rules of documents, states and slots.
#include "kda_test_case.h"

namespace kda::test {
namespace {

template <class Kernel>
struct KdaForward : testing::Test {};
using Kernels = testing::Types<Recurrent, Chunk, ChunkRescaled>;
TYPED_TEST_SUITE(KdaForward, Kernels);

TYPED_TEST(KdaForward, EqualsTheRecurrenceAtEveryLength) {
  for (int64_t T = 1; T <= 130; ++T) {
    const Case c{.H = 1, .K = 16, .V = 16, .cu = {0, double(T)}, .g_low = T % 2 ? -5.0 : -0.5};
    for (uint32_t t : {KB_F32, KB_F64}) expect_reference<TypeParam>(c, t, kb::text("length ", T));
  }
}

TYPED_TEST(KdaForward, HandlesWidthsThatAreNoMultipleOfAVector) {
  for (auto [K, V] :
       {std::pair<int64_t, int64_t>{6, 6}, {8, 6}, {33, 33}, {1, 1}, {16, 48}, {64, 8}, {5, 70}, {128, 128}, {33, 17}})
    for (uint32_t t : {KB_F32, KB_F64})
      expect_reference<TypeParam>({.K = K, .V = V, .cu = {0, 37}}, t, kb::text("K ", K, " V ", V));
}

TYPED_TEST(KdaForward, StartsFromNothingWithoutAState) {
  for (uint32_t t : {KB_F32, KB_F64}) expect_reference<TypeParam>({.cu = {0, 50}, .s0 = false}, t, "no s0");
}

TYPED_TEST(KdaForward, LeavesEmptyDocumentsTheirStateAndUnusedTokensZero) {
  const Case c{.cu = {0, 0, 1, 1, 18, 35, 35, 35}, .tokens = 41};
  for (uint32_t t : {KB_F32, KB_F64}) expect_reference<TypeParam>(c, t, "empty documents");
  const Operands x = make(c, KB_F64);
  const auto out = run<TypeParam>(x);
  for (int64_t i = 35 * c.H * c.V; i < out[0].size(); ++i) EXPECT_EQ(out[0].at(i), 0);
  for (int64_t i = 0; i < c.H * c.K * c.V; ++i) EXPECT_EQ(out[1].at(i), x.s0.at(i));
}

// Rows [from, to) of axis 0.
Array rows(const Array& a, int64_t from, int64_t to) {
  kb::Shape s = kb::shape_of(a.type);
  const int64_t width = a.size() / s[0];
  s[0] = to - from;
  Array b = kbtest::array(a.type.dtype, s);
  for (int64_t i = 0; i < b.size(); ++i) b.set(i, a.at(from * width + i));
  b.type.lo = a.type.lo, b.type.hi = a.type.hi;
  return b;
}
Operands piece(const Operands& x, int64_t from, int64_t to, const Array& s0) {
  Operands y;
  y.q = rows(x.q, from, to), y.k = rows(x.k, from, to), y.v = rows(x.v, from, to), y.g = rows(x.g, from, to),
  y.beta = rows(x.beta, from, to);
  y.cu = kbtest::array(KB_I32, {2}, {0, double(to - from)});
  y.s0 = s0;
  return y;
}

TYPED_TEST(KdaForward, CarriesTheStateAcrossACut) {
  const Operands x = make({.K = 16, .V = 8, .cu = {0, 90}}, KB_F64);
  const auto whole = run<TypeParam>(x);
  for (int64_t cut : {1, 15, 16, 17, 50, 89}) {
    const auto first = run<TypeParam>(piece(x, 0, cut, x.s0)), second = run<TypeParam>(piece(x, cut, 90, first[1]));
    EXPECT_LE(kbtest::relative_error(first[0], rows(whole[0], 0, cut)), 1e-13) << cut;
    EXPECT_LE(kbtest::relative_error(second[0], rows(whole[0], cut, 90)), 1e-13) << cut;
    EXPECT_LE(kbtest::relative_error(second[1], whole[1]), 1e-13) << cut;
  }
}

TYPED_TEST(KdaForward, GivesPackedDocumentsTheBitsOfSeparateOnes) {
  const Case c{.K = 16, .V = 16, .cu = {0, 1, 18, 34, 75}};
  const Operands x = make(c, KB_F32);
  const auto packed = run<TypeParam>(x);
  for (size_t d = 0; d + 1 < c.cu.size(); ++d) {
    const auto n = int64_t(d);
    const auto alone = run<TypeParam>(piece(x, int64_t(c.cu[d]), int64_t(c.cu[d + 1]), rows(x.s0, n, n + 1)));
    EXPECT_EQ(alone[0].bytes, rows(packed[0], int64_t(c.cu[d]), int64_t(c.cu[d + 1])).bytes) << d;
    EXPECT_EQ(alone[1].bytes, rows(packed[1], n, n + 1).bytes) << d;
  }
}

TYPED_TEST(KdaForward, DoesNotDependOnTheNumberOfThreads) {
  const Operands x = make({.H = 3, .K = 16, .V = 16, .cu = {0, 40, 90}}, KB_F32);
  const auto one = run<TypeParam>(x, threads(1)), many = run<TypeParam>(x, threads(7));
  EXPECT_EQ(one[0].bytes, many[0].bytes);
  EXPECT_EQ(one[1].bytes, many[1].bytes);
}

TYPED_TEST(KdaForward, ComputesEachOutputWithoutTheOther) {
  const Operands x = make({.K = 33, .V = 17, .cu = {0, 40}}, KB_F32);
  const auto both = run<TypeParam>(x), only_o = run<TypeParam>(x, unwanted(2)),
             only_state = run<TypeParam>(x, unwanted(1));
  EXPECT_LE(kbtest::relative_error(only_o[0], both[0]), 1e-6);
  EXPECT_LE(kbtest::relative_error(only_state[1], both[1]), 1e-6);
}

TYPED_TEST(KdaForward, ContinuesTheSlotsItIsGivenAndNoOthers) {
  // Documents 0, 1, 3 continue slots 4, 0, 2; document 2 is empty, and its slot number means nothing.
  const Case c{.K = 16, .V = 16, .cu = {0, 30, 70, 70, 110}, .slot = {4, 0, -1, 2}, .slots = 6};
  for (uint32_t t : {KB_F32, KB_F64}) {
    Operands x = make(c, t);
    const auto got = run<TypeParam>(x);
    const int64_t matrix = c.H * c.K * c.V;
    for (int64_t slot : {1, 3, 5})
      for (int64_t i = 0; i < matrix; ++i) ASSERT_EQ(got[1].at(slot * matrix + i), x.s0.at(slot * matrix + i));
    Operands plain = x;  // the same without slots
    plain.slot = kbtest::absent();
    plain.s0 = kbtest::array(t, {4, c.H, c.K, c.V});
    for (int64_t d : {0, 1, 3})
      for (int64_t i = 0; i < matrix; ++i)
        plain.s0.set(d * matrix + i, x.s0.at(int64_t(c.slot[size_t(d)]) * matrix + i));
    const auto want = expected<TypeParam>(plain);
    EXPECT_LE(kbtest::relative_error(got[0], want[0]), tolerance(t));
    for (int64_t d : {0, 1, 3}) {
      const auto slot = int64_t(c.slot[size_t(d)]);
      EXPECT_LE(kbtest::relative_error(rows(got[1], slot, slot + 1), rows(want[1], d, d + 1)), tolerance(t));
    }
  }
}

TEST(Kda, StoresExactPairsUnderOrthonormalKeysWithoutDecay) {
  Operands x = make({.H = 1, .K = 16, .V = 16, .cu = {0, 16}, .g_low = 0, .s0 = false}, KB_F64);
  for (int64_t i = 0; i < x.k.size(); ++i) x.k.set(i, i % 17 == 0);
  for (int64_t i = 0; i < x.beta.size(); ++i) x.beta.set(i, 1);
  for (const auto& out : {run<Recurrent>(x), run<Chunk>(x), run<ChunkRescaled>(x)})
    for (int64_t i = 0; i < 256; ++i) EXPECT_NEAR(out[1].at(i), x.v.at(i), 1e-15);
}

std::string reason(const kb_kernel* k, const Operands& x) {
  auto out = forward_outputs(x);
  try {
    kbtest::run(k, scale_of(x), forward_inputs(x), out);
  } catch (const kb::Error& e) {
    return e.what();
  }
  return "";
}
TEST(Kda, DeclinesInASentence) {
  const Operands fierce = make({.range_low = -INFINITY}, KB_F32);
  EXPECT_EQ(reason(kb::kernel_table<Chunk>(), fierce),
            "wants a log decay of at least -5 (80 / 16 tokens) but the decay gives down to -inf");
  EXPECT_EQ(reason(kb::kernel_table<ChunkRescaled>(), fierce), "");
  const Operands decode = make({.cu = {0, 1, 2}, .slot = {1, 0}, .slots = 2}, KB_F32);
  EXPECT_EQ(reason(kb::kernel_table<Chunk>(), decode),
            "wants more than 8 tokens a sequence but got 2 tokens for 2 sequences");
  EXPECT_EQ(reason(kb::kernel_table<Recurrent>(), decode), "");
}

std::string refusal(const std::vector<kb_type>& in) {
  kb_infer i{};
  const std::vector<kb_attr> a{kb::default_attr("scale", 1.0)};
  kb_type out[KB_MAX_OUT];
  i.attr = a.data(), i.n_attr = 1, i.in = in.data(), i.n_in = uint32_t(in.size()), i.out = out;
  kb_error e{};
  return kb::op_table<KdaOp>()->infer(&i, &e) ? e.message : "";
}
TEST(Kda, RefusesShapesThatDoNotFit) {
  const Operands x = make({.K = 8, .V = 6}, KB_F32);
  const std::vector<kb_type> good{x.q.type, x.k.type, x.v.type, x.g.type, x.beta.type, x.cu.type, x.s0.type};
  EXPECT_EQ(refusal(good), "");
  auto with = [&](size_t input, int axis, int64_t size) {
    auto t = good;
    t[input].shape[axis] = size;
    return refusal(t);
  };
  EXPECT_EQ(with(kK, 2, 9), "key width of k (axis 2, as in q) must be 8 but got 9");
  EXPECT_EQ(with(kV, 0, 19), "tokens of v (axis 0, as in q) must be 20 but got 19");
  EXPECT_EQ(with(kG, 1, 3), "heads of g (axis 1, as in q) must be 2 but got 3");
  EXPECT_EQ(with(kBeta, 1, 1), "heads of beta (axis 1, as in q) must be 2 but got 1");
  EXPECT_EQ(with(kS0, 3, 8), "axis 3 of s0 must be 6 but got 8");
  auto mixed = good;
  mixed[kG].dtype = KB_BF16;
  EXPECT_EQ(refusal(mixed), "g (wide) must be f32 but got bf16");
}

}  // namespace
}  // namespace kda::test
