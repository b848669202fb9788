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
  return o;
}
bool latent(const Case& c) { return c.s.d == 192 && c.s.e == 128; }
std::vector<Case> more_cases() {
  std::vector<Case> all = cases();
  for (bool causal : {true, false}) {
    all.push_back({{3, 3, 192, 128}, {0, 1, 2, 3, 4}, 4, causal, 0.07, 1});  // documents of one token
    all.push_back({{2, 2, 96, 96}, {0, 200, 333}, 340, causal, 0.1, 1});
    all.push_back({{4, 1, 128, 128}, {0, 300}, 300, causal, 0.09, 1});
    all.push_back({{4, 1, 192, 128}, {0, 150, 300}, 300, causal, 0.07, 1});
    all.push_back({{2, 2, 256, 256}, {0, 100, 231}, 231, causal, 0.06, 1});
  }
  return all;
}
// Without cuDNN the kernels must say so; there is nothing else to test then.
#define KB_NEEDS_CUDNN()                                    \
  KB_NEEDS_DEVICE();                                        \
  if (const std::string why = no_cudnn(); !why.empty()) {   \
    EXPECT_NE(why.find("cuDNN"), std::string::npos) << why; \
    GTEST_SKIP() << why;                                    \
  }
std::string no_cudnn() {
  const Case c{{2, 2, 64, 64}, {0, 9}, 9, true, 0.1, 1};
  const Tensors t = make(c, KB_BF16, false);
  const std::string why = declines(forward(), c, {&t.q, &t.k, &t.v, &t.cu});
  return why.find("where the loader looks") != std::string::npos || why.find("9.14 or newer") != std::string::npos ||
                 why.find("CUDA") != std::string::npos
             ? why
             : "";
}

TEST(CudnnAttention, EqualsThePlainLoopsWhereItIsTaken) {
  KB_NEEDS_CUDNN();
  Worst worst{"o, lse", {}};
  for (const Case& c : more_cases()) {
    const Tensors t = make(c, KB_BF16, false);
    const std::string why = declines(forward(), c, {&t.q, &t.k, &t.v, &t.cu});
    if (why.empty())
      check_forward(forward(), KB_BF16, c, worst);
    else
      std::printf("  %s: %s\n", text_of(c).c_str(), why.c_str());
    EXPECT_TRUE(why.empty() || !latent(c)) << text_of(c) << ": " << why;
  }
}

TEST(CudnnAttentionBackward, EqualsThePlainLoopsWhereItIsTaken) {
  KB_NEEDS_CUDNN();
  for (const bool fixed : {false, true}) {
    Worst worst{fixed ? "dq, dk, dv in a fixed order" : "dq, dk, dv", {}};
    for (const Case& c : more_cases()) {
      const Tensors t = make(c, KB_BF16);
      const Array o = as(KB_BF16, t.o), lse = as(KB_F32, t.lse);
      const std::string why = declines(backward(), c, {&t.q, &t.k, &t.v, &t.cu, &o, &lse, &t.up}, fixed);
      if (why.empty())
        check_backward(backward(), KB_BF16, c, worst, order(fixed));
      else
        std::printf("  %s: %s\n", text_of(c).c_str(), why.c_str());
      EXPECT_TRUE(why.empty() || !latent(c)) << text_of(c) << ": " << why;
    }
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
  kbtest::run_device(forward(), attrs(s.c), s.ins(), s.out);
  kbtest::run_device(backward(), attrs(s.c), s.outs(), s.down);
  for (uint64_t unwanted = 0; unwanted < 7; ++unwanted) {
    kbtest::Options o;
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
  kbtest::run_device(forward(), attrs(s.c), s.ins(), s.out);
  kbtest::run_device(backward(), attrs(s.c), s.outs(), s.down);
  std::vector<Array> out = s.out, down = s.down;
  kbtest::DeviceCall there(forward(), attrs(s.c), s.ins(), out), back(backward(), attrs(s.c), s.outs(), down);
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
  kbtest::run_device(forward(), attrs(c), {&t.q, &t.k, &t.v, &t.cu}, out);
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
  const Case c{{8, 8, 192, 128}, {0, 1, 2, 3, 32768}, 32768, true, 0.07, 1};
  const auto type = [&](const Shape& s) { return array(KB_BF16, s); };
  const Array q = type({c.tokens, 8, 192}), o = type({c.tokens, 8, 128}), lse = array(KB_F32, {c.tokens, 8}),
              cu = array(KB_I32, {5}, c.cu);
  const std::string why = declines(backward(), c, {&q, &q, &o, &cu, &o, &lse, &o});
  EXPECT_NE(why.find("may take 256 MiB but needs 65536"), std::string::npos) << why;
}

}  // namespace
}  // namespace kb::cudnn
