// cudnn_test.cpp: attention through cuDNN against the plain loops, as our own kernels are tested.
#include "kernels.h"
#include "tests/support/attention_cases.h"

namespace kb::cudnn {
namespace {
using namespace attention_test;

const kb_kernel* forward() { return kernel_table<Attention>(); }
const kb_kernel* backward() { return kernel_table<AttentionBackward>(); }
kbtest::Options order(bool fixed) {
  kbtest::Options o;
  o.deterministic = fixed;
  o.ask = false;  // cases are shorter than what the kernels want to be chosen for
  return o;
}
const std::vector<std::pair<int64_t, int64_t>> widths{
    {192, 128}, {96, 96}, {40, 40}, {72, 72},   {80, 80},  {112, 112}, {160, 96}, {64, 128}, {128, 64},
    {144, 128}, {32, 32}, {8, 24},  {256, 256}, {176, 16}, {176, 80},  {16, 128}, {128, 16}, {48, 112}};
bool forward_takes(const Heads& s) { return s.d % 8 == 0 && s.e % 8 == 0 && s.d <= 256 && s.e <= 256; }
bool backward_takes(const Heads& s) {
  return s.d % 16 == 0 && s.e % 16 == 0 && s.e <= 128 && (s.d <= 128 || (s.d <= 192 && s.e > 64));
}
std::vector<Case> all_cases() {
  std::vector<Case> all = cases();
  for (bool causal : {true, false}) {
    all.push_back({{3, 3, 192, 128}, {0, 1, 2, 3, 4}, 4, causal, 0.07, 1});  // documents of one token
    all.push_back({{4, 1, 128, 128}, {0, 300}, 300, causal, 0.09, 1});
    all.push_back({{4, 1, 192, 128}, {0, 150, 300}, 300, causal, 0.07, 1});
  }
  for (const auto& [d, e] : widths) all.push_back({{2, 2, d, e}, {0, 200, 333}, 340, true, 0.1, 1});
  return all;
}
// What supports() says of room for 2,048 tokens in one document.
std::string said(const kb_kernel* k, int64_t d, int64_t e, bool fixed = false, int64_t tokens = 2048,
                 int64_t documents = 1) {
  const Case c{{2, 2, d, e}, {0, double(tokens)}, tokens, true, 0.1, 1};
  const Array q = array(KB_BF16, {tokens, 2, d}), v = array(KB_BF16, {tokens, 2, e}), lse = array(KB_F32, {tokens, 2}),
              cu = array(KB_I32, {documents + 1});
  return k == forward() ? declines(k, c, {&q, &q, &v, &cu}) : declines(k, c, {&q, &q, &v, &cu, &v, &lse, &v}, fixed);
}
// Without cuDNN, or without the one CUDA runtime that its frontend opens, the kernels say so; nothing else can be tested then.
#define KB_NEEDS_CUDNN() \
  KB_NEEDS_DEVICE();     \
  if (const std::string why = no_cudnn(); !why.empty()) GTEST_SKIP() << why
std::string no_cudnn() {
  const std::string why = said(forward(), 192, 128);
  for (const char* missing : {"where the loader looks", "9.14 or newer", "libcudart", "libcuda.so"})
    if (why.find(missing) != std::string::npos) return why;
  return "";
}

TEST(CudnnAttention, TakesTheWidthsThatItsPageNames) {
  KB_NEEDS_CUDNN();
  for (const auto& [d, e] : widths) {
    EXPECT_EQ(said(forward(), d, e).empty(), forward_takes({2, 2, d, e}))
        << d << "/" << e << ": " << said(forward(), d, e);
    for (const bool fixed : {false, true})
      EXPECT_EQ(said(backward(), d, e, fixed).empty(), backward_takes({2, 2, d, e}))
          << d << "/" << e << ": " << said(backward(), d, e, fixed);
  }
  EXPECT_NE(said(forward(), 33, 64).find("takes multiples of 8 channels up to 256 but got 33/64"), std::string::npos);
  EXPECT_NE(said(backward(), 256, 256).find("above 128/64 up to 192/128, but got 256/256"), std::string::npos);
  EXPECT_NE(said(forward(), 96, 96, false, 2048, 8).find("room for 512 tokens a document and more"), std::string::npos);
}

TEST(CudnnAttention, EqualsThePlainLoops) {
  KB_NEEDS_CUDNN();
  Worst worst{"o, lse", {}};
  for (const Case& c : all_cases())
    if (forward_takes(c.s)) check_forward(forward(), KB_BF16, c, worst, order(true));
}

TEST(CudnnAttentionBackward, EqualsThePlainLoops) {
  KB_NEEDS_CUDNN();
  for (const bool fixed : {false, true}) {
    Worst worst{fixed ? "dq, dk, dv in a fixed order" : "dq, dk, dv", {}};
    for (const Case& c : all_cases())
      if (backward_takes(c.s)) check_backward(backward(), KB_BF16, c, worst, order(fixed));
  }
}

struct Sample {
  Case c{{4, 2, 192, 128}, {3, 3, 300, 300, 1500}, 1510, true, 0.07, 1};
  Array q = normal(KB_BF16, {c.tokens, 4, 192}, 1), k = normal(KB_BF16, {c.tokens, 2, 192}, 2),
        v = normal(KB_BF16, {c.tokens, 2, 128}, 3), up = normal(KB_BF16, {c.tokens, 4, 128}, 4),
        cu = array(KB_I32, {5}, c.cu);
  std::vector<Array> out{array(KB_BF16, {c.tokens, 4, 128}), array(KB_F32, {c.tokens, 4}), array(KB_F32, {4})};
  std::vector<Array> down{q, k, v};
  std::vector<const Array*> ins() { return {&q, &k, &v, &cu}; }
  std::vector<const Array*> outs() { return {&q, &k, &v, &cu, &out[0], &out[1], &up}; }
};

TEST(CudnnAttention, InAFixedOrderGivesTheSameBitsAgainAndWhenOutputsAreUnwanted) {
  KB_NEEDS_CUDNN();
  Sample s;
  kbtest::run_device(forward(), attrs(s.c), s.ins(), s.out, order(true));
  kbtest::run_device(backward(), attrs(s.c), s.outs(), s.down, order(true));
  for (uint64_t unwanted = 0; unwanted < 7; ++unwanted) {
    kbtest::Options o = order(true);
    o.unwanted = unwanted;
    std::vector<Array> part = s.out, part_down = s.down;
    kbtest::run_device(forward(), attrs(s.c), s.ins(), part, o);
    kbtest::run_device(backward(), attrs(s.c), s.outs(), part_down, o);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(s.out[i].bytes, part[i].bytes) << i << " of " << unwanted;
      EXPECT_EQ(s.down[i].bytes, part_down[i].bytes) << "d" << i << " of " << unwanted;
    }
  }
}

TEST(CudnnAttention, RecordedGivesTheSameBits) {
  KB_NEEDS_CUDNN();
  Sample s;
  kbtest::run_device(forward(), attrs(s.c), s.ins(), s.out, order(true));
  kbtest::run_device(backward(), attrs(s.c), s.outs(), s.down, order(true));
  std::vector<Array> out = s.out, down = s.down;
  kbtest::DeviceCall there(forward(), attrs(s.c), s.ins(), out, order(true)),
      back(backward(), attrs(s.c), s.outs(), down, order(true));
  kbtest::median_ms([&] { there.launch(), back.launch(); }, 2, 0, true, 2);  // true: recorded, then launched
  there.fetch(out), back.fetch(down);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(s.out[i].bytes, out[i].bytes) << i;
    EXPECT_EQ(s.down[i].bytes, down[i].bytes) << "d" << i;
  }
}

TEST(CudnnAttention, NanStaysInItsDocument) {
  KB_NEEDS_CUDNN();
  const Case c{{2, 1, 96, 96}, {0, 300, 800}, 800, true, 0.1, 1};
  Tensors t = make(c, KB_BF16);
  for (Array* x : {&t.q, &t.k, &t.v, &t.up})
    for (int64_t i = x->size() * 3 / 8; i < x->size(); ++i) x->set(i, NAN);
  std::vector<Array> out{array(KB_BF16, shape_of(t.o.type)), as(KB_F32, t.lse), as(KB_F32, t.peak)},
      down{t.q, t.k, t.v};
  const Array o = as(KB_BF16, t.o), lse = as(KB_F32, t.lse);
  kbtest::run_device(forward(), attrs(c), {&t.q, &t.k, &t.v, &t.cu}, out, order(true));
  kbtest::run_device(backward(), attrs(c), {&t.q, &t.k, &t.v, &t.cu, &o, &lse, &t.up}, down, order(false));
  int64_t bad = 0, bad_down = 0;
  for (int64_t i = 0; i < out[0].size() * 3 / 8; ++i) bad += !std::isfinite(out[0].at(i));
  for (const Array& x : down)
    for (int64_t i = 0; i < x.size() * 3 / 8; ++i) bad_down += !std::isfinite(x.at(i));
  EXPECT_EQ(bad, 0);
  EXPECT_EQ(bad_down, 0);
}

TEST(CudnnAttentionBackward, DeclinesAFixedOrderThatTakesTooMuchMemory) {
  KB_NEEDS_DEVICE();
  const std::string why = said(backward(), 192, 128, true, 8192);
  EXPECT_NE(why.find("may take 64 MiB but needs 256"), std::string::npos) << why;
}

}  // namespace
}  // namespace kb::cudnn
