// Attention on CUDA against the plain loops in double. Tolerances in norm: f32 3e-6 (logits of size 10 carry 1e-6 each),
// bf16 6e-3 (probabilities and outputs are rounded to 8 bits).
#include <gtest/gtest.h>

#include "attention_cuda.h"
#include "attention_kernels.h"
#include "plugins/backend_cpu/reference.h"
#include "tests/support/device_call.h"

namespace kb::cuda {
namespace {
using cpu::reference::Heads;
using kbtest::absent;
using kbtest::Array;
using kbtest::array;
using kbtest::normal;

struct Case {
  Heads s;
  std::vector<double> cu;
  int64_t tokens;
  bool causal;
  double scale, size;  // of q
};
std::vector<Case> cases() {
  std::vector<Case> all;
  for (bool causal : {true, false}) {
    all.push_back({{1, 1, 1, 1}, {0, 1}, 1, causal, 1, 1});                       // T = 1
    all.push_back({{2, 2, 3, 5}, {0, 5, 5, 6, 12, 12, 12}, 15, causal, 0.5, 1});  // lengths 0 and 1, unused rows
    all.push_back({{4, 4, 32, 32}, {0, 130, 131, 300}, 300, causal, 0.18, 1});    // several tiles
    all.push_back({{6, 2, 17, 9}, {0, 63, 128, 193}, 200, causal, 0.25, 1});      // grouped heads, odd widths
    all.push_back({{70, 1, 24, 16}, {0, 3, 12}, 12, causal, 0.2, 1});             // many heads on one key
    all.push_back({{3, 1, 64, 65}, {0, 127}, 127, causal, 0.125, 1});
    all.push_back({{1, 1, 8, 8}, {0, 700}, 700, causal, 0.3, 1});
    all.push_back({{3, 3, 192, 128}, {0, 0, 70, 70, 71, 200, 328, 328}, 333, causal, 0.07, 1});  // latent attention
    all.push_back({{4, 2, 192, 128}, {0, 1, 2, 3, 259}, 259, causal, 0.07, 1});
    all.push_back({{2, 2, 192, 128}, {0, 1}, 1, causal, 0.07, 1});
    all.push_back({{2, 1, 64, 64}, {0, 5, 5, 9}, 12, causal, 0.125, 1});
    all.push_back({{2, 2, 128, 128}, {3, 3, 200, 391}, 400, causal, 0.09, 1});  // rows before the documents
    all.push_back({{2, 1, 64, 64}, {0, 64, 192, 193}, 193, causal, 0.125, 1});
    all.push_back({{2, 1, 256, 256}, {0, 100, 231}, 231, causal, 0.06, 1});
    all.push_back({{2, 2, 16, 16}, {0, 0, 0}, 9, causal, 1, 1});  // no document has a token
  }
  return all;
}
std::vector<kb_attr> attrs(const Case& c) { return {default_attr("scale", c.scale), default_attr("causal", c.causal)}; }

Array as(uint32_t dtype, const Array& x) {
  Array y = array(dtype, shape_of(x.type));
  for (int64_t i = 0; i < x.size(); ++i) y.set(i, x.at(i));
  return y;
}

struct Tensors {  // of dtype, and the same values as doubles; o, lse, peak in double
  Array q, k, v, cu, up;
  Array o, lse, peak, dq, dk, dv;
};
Tensors make(const Case& c, uint32_t dtype, bool backward = true) {
  Tensors t{normal(dtype, {c.tokens, c.s.h, c.s.d}, 1, c.size),
            normal(dtype, {c.tokens, c.s.g, c.s.d}, 2),
            normal(dtype, {c.tokens, c.s.g, c.s.e}, 3),
            array(KB_I32, {int64_t(c.cu.size())}, c.cu),
            normal(dtype, {c.tokens, c.s.h, c.s.e}, 4),
            array(KB_F64, {c.tokens, c.s.h, c.s.e}),
            array(KB_F64, {c.tokens, c.s.h}),
            array(KB_F64, {c.s.h}),
            array(KB_F64, {c.tokens, c.s.h, c.s.d}),
            array(KB_F64, {c.tokens, c.s.g, c.s.d}),
            array(KB_F64, {c.tokens, c.s.g, c.s.e})};
  const Array q = as(KB_F64, t.q), k = as(KB_F64, t.k), v = as(KB_F64, t.v), up = as(KB_F64, t.up);
  const int64_t documents = int64_t(c.cu.size()) - 1;
  cpu::reference::attention<double>(c.s, t.cu.data<int32_t>(), documents, c.causal, c.scale, q.data<double>(),
                                    k.data<double>(), v.data<double>(), t.o.data<double>(), t.lse.data<double>(),
                                    t.peak.data<double>());
  if (backward)
    cpu::reference::attention_backward<double>(c.s, t.cu.data<int32_t>(), documents, c.causal, c.scale,
                                               q.data<double>(), k.data<double>(), v.data<double>(), up.data<double>(),
                                               t.dq.data<double>(), t.dk.data<double>(), t.dv.data<double>());
  return t;
}
double tolerance(uint32_t dtype) { return dtype == KB_F32 ? 3e-6 : 6e-3; }
std::string text_of(const Case& c) {
  return kb::text(c.s.h, "/", c.s.g, " heads of ", c.s.d, "/", c.s.e, ", ", c.cu.size() - 1, " documents, ", c.tokens,
                  " tokens", c.causal ? ", causal" : "");
}
struct Worst {  // largest error of each output over the cases, for the log
  std::string name;
  std::vector<double> error;
  ~Worst() {
    std::printf("  %s:", name.c_str());
    for (double e : error) std::printf(" %.2e", e);
    std::printf("\n");
  }
  double operator()(size_t i, double e) {
    if (error.size() <= i) error.resize(i + 1);
    error[i] = std::max(error[i], std::isnan(e) ? INFINITY : e);
    return e;
  }
};
bool finite_equal(const Array& got, const Array& want, double tolerance) {
  for (int64_t i = 0; i < want.size(); ++i)
    if (!(got.at(i) == want.at(i) ||
          std::abs(got.at(i) - want.at(i)) <= tolerance * std::max(1.0, std::abs(want.at(i)))))
      return false;
  return true;
}

void check_forward(const kb_kernel* k, uint32_t dtype, const Case& c, Worst& worst) {
  const Tensors t = make(c, dtype);
  std::vector<Array> out{t.q, as(KB_F32, t.lse), as(KB_F32, t.peak)};
  out[0] = array(dtype, shape_of(t.o.type));
  kbtest::run_device(k, attrs(c), {&t.q, &t.k, &t.v, &t.cu}, out);
  EXPECT_LT(worst(0, kbtest::relative_error(out[0], t.o)), tolerance(dtype) * std::max(1.0, c.size)) << text_of(c);
  EXPECT_LT(worst(1, kbtest::relative_error(out[1], t.lse, 1e-3)), 3e-6 * std::max(1.0, c.size)) << text_of(c);
  EXPECT_TRUE(finite_equal(out[2], t.peak, 1e-5)) << text_of(c);
}
void check_backward(const kb_kernel* k, uint32_t dtype, const Case& c, Worst& worst) {
  const Tensors t = make(c, dtype);
  const Array o = as(dtype, t.o), lse = as(KB_F32, t.lse);
  std::vector<Array> out{t.q, t.k, t.v};
  kbtest::run_device(k, attrs(c), {&t.q, &t.k, &t.v, &t.cu, &o, &lse, &t.up}, out);
  const Array* want[3] = {&t.dq, &t.dk, &t.dv};
  // dq and dk of one token are exactly 0: compare with the size of the upstream gradient
  for (size_t i = 0; i < 3; ++i)
    EXPECT_LT(worst(i, kbtest::relative_error(out[i], *want[i], c.tokens < 20 ? 1 : 1e-30)),
              2 * tolerance(dtype) * std::max(1.0, c.size))
        << "d"
        << "qkv"[i] << " of " << text_of(c);
}

TEST(Attention, EqualsThePlainLoops) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : {KB_F32, KB_BF16}) {
    Worst worst{kb::text("o, lse of ", dtype_name(dtype)), {}};
    for (const Case& c : cases()) check_forward(kernel_table<Attention>(), dtype, c, worst);
    check_forward(kernel_table<Attention>(), dtype, {{2, 1, 16, 16}, {0, 100}, 100, true, 1, 1e3},
                  worst);  // logits of 1e4
  }
}
TEST(AttentionBackward, EqualsThePlainLoops) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : {KB_F32, KB_BF16}) {
    Worst worst{kb::text("dq, dk, dv of ", dtype_name(dtype)), {}};
    for (const Case& c : cases()) check_backward(kernel_table<AttentionBackward>(), dtype, c, worst);
  }
}

TEST(AttentionBackward, AQueryThatSeesOneKeyHasNoGradientAtAllInF32) {
  KB_NEEDS_DEVICE();
  for (bool causal : {true, false}) {
    const Case c{{3, 3, 40, 24}, {0, 1, 2, 3, 4}, 4, causal, 0.3, 1};
    const Tensors t = make(c, KB_F32);
    const Array o = as(KB_F32, t.o), lse = as(KB_F32, t.lse);
    std::vector<Array> out{t.q, t.k, t.v};
    kbtest::run_device(kernel_table<AttentionBackward>(), attrs(c), {&t.q, &t.k, &t.v, &t.cu, &o, &lse, &t.up}, out);
    for (size_t i = 0; i < 2; ++i)
      for (int64_t x = 0; x < c.tokens * c.s.h * c.s.d; ++x) ASSERT_EQ(out[i].at(x), 0) << "qk"[i] << " at " << x;
  }
}

// The reason why a kernel declines a case; empty when it takes it.
template <class K>
std::string declines(const Case& c, std::vector<const Array*> in) {
  std::vector<kb_tensor> ti;
  for (const Array* a : in) ti.push_back({nullptr, a->type, {}});
  const std::vector<kb_attr> at = attrs(c);
  kb_call call{};
  call.struct_size = KB_STRUCT_SIZE(kb_call, device);
  call.attr = at.data(), call.n_attr = uint32_t(at.size());
  call.in = ti.data(), call.n_in = uint32_t(ti.size());
  call.device = &kbtest::cuda_device();
  kb_error e{};
  return kernel_table<K>()->supports(&call, &e) ? e.message : "";
}
TEST(AttentionWgmma, EqualsThePlainLoops) {
  KB_NEEDS_DEVICE();
  Worst worst{"wgmma o, lse", {}}, worst_back{"wgmma dq, dk, dv", {}};
  for (const Case& c : cases()) {
    const Tensors t = make(c, KB_BF16);
    const Array o = as(KB_BF16, t.o), lse = as(KB_F32, t.lse);
    if (declines<AttentionWgmma>(c, {&t.q, &t.k, &t.v, &t.cu}).empty())
      check_forward(kernel_table<AttentionWgmma>(), KB_BF16, c, worst);
    if (declines<AttentionBackwardWgmma>(c, {&t.q, &t.k, &t.v, &t.cu, &o, &lse, &t.up}).empty())
      check_backward(kernel_table<AttentionBackwardWgmma>(), KB_BF16, c, worst_back);
  }
}

const Case& grouped() {
  static const Case c{{6, 2, 24, 16}, {0, 63, 128, 193}, 200, true, 0.25, 1};
  return c;
}
TEST(Attention, GivesTheSameBitsAgainAndWhenOutputsAreUnwanted) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : {KB_F32, KB_BF16}) {
    const Tensors t = make(grouped(), dtype);
    std::vector<Array> all{array(dtype, shape_of(t.o.type)), as(KB_F32, t.lse), as(KB_F32, t.peak)};
    kbtest::run_device(kernel_table<Attention>(), attrs(grouped()), {&t.q, &t.k, &t.v, &t.cu}, all);
    for (uint64_t unwanted = 0; unwanted < 7; ++unwanted) {
      std::vector<Array> part = all;
      kbtest::Options o;
      o.unwanted = unwanted;
      kbtest::run_device(kernel_table<Attention>(), attrs(grouped()), {&t.q, &t.k, &t.v, &t.cu}, part, o);
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(all[i].bytes, part[i].bytes) << i << " of " << unwanted;
    }
  }
}
TEST(AttentionBackward, GivesTheSameBitsAgainAndWhenOutputsAreUnwanted) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : {KB_F32, KB_BF16}) {
    const Tensors t = make(grouped(), dtype);
    const Array o = as(dtype, t.o), lse = as(KB_F32, t.lse);
    std::vector<Array> all{t.q, t.k, t.v};
    kbtest::run_device(kernel_table<AttentionBackward>(), attrs(grouped()), {&t.q, &t.k, &t.v, &t.cu, &o, &lse, &t.up},
                       all);
    for (uint64_t unwanted = 0; unwanted < 7; ++unwanted) {
      std::vector<Array> part = all;
      kbtest::Options options;
      options.unwanted = unwanted;
      kbtest::run_device(kernel_table<AttentionBackward>(), attrs(grouped()),
                         {&t.q, &t.k, &t.v, &t.cu, &o, &lse, &t.up}, part, options);
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(all[i].bytes, part[i].bytes) << i << " of " << unwanted;
    }
  }
}
TEST(AttentionWgmma, GivesTheSameBitsAgainAndWhenOutputsAreUnwanted) {
  KB_NEEDS_DEVICE();
  const Case c{{4, 2, 192, 128}, {0, 1, 300, 1500}, 1510, true, 0.07, 1};
  const Array q = normal(KB_BF16, {c.tokens, 4, 192}, 1), k = normal(KB_BF16, {c.tokens, 2, 192}, 2),
              v = normal(KB_BF16, {c.tokens, 2, 128}, 3), up = normal(KB_BF16, {c.tokens, 4, 128}, 4),
              cu = array(KB_I32, {4}, c.cu);
  std::vector<Array> all{array(KB_BF16, {c.tokens, 4, 128}), array(KB_F32, {c.tokens, 4}), array(KB_F32, {4})};
  kbtest::run_device(kernel_table<AttentionWgmma>(), attrs(c), {&q, &k, &v, &cu}, all);
  std::vector<Array> down{q, k, v};
  kbtest::run_device(kernel_table<AttentionBackwardWgmma>(), attrs(c), {&q, &k, &v, &cu, &all[0], &all[1], &up}, down);
  for (uint64_t unwanted = 0; unwanted < 7; ++unwanted) {
    kbtest::Options o;
    o.unwanted = unwanted;
    std::vector<Array> part = all, part_down = down;
    kbtest::run_device(kernel_table<AttentionWgmma>(), attrs(c), {&q, &k, &v, &cu}, part, o);
    kbtest::run_device(kernel_table<AttentionBackwardWgmma>(), attrs(c), {&q, &k, &v, &cu, &all[0], &all[1], &up},
                       part_down, o);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(all[i].bytes, part[i].bytes) << i << " of " << unwanted;
      EXPECT_EQ(down[i].bytes, part_down[i].bytes) << "d" << i << " of " << unwanted;
    }
  }
}
TEST(Attention, NanInAQueryReachesItsOutputAlone) {
  KB_NEEDS_DEVICE();
  const Case c{{1, 1, 8, 8}, {0, 70}, 70, true, 0.5, 1};
  for (uint32_t dtype : {KB_F32, KB_BF16}) {
    Tensors t = make(c, dtype);
    t.q.set(8 * 69, NAN);
    std::vector<Array> out{array(dtype, shape_of(t.o.type)), as(KB_F32, t.lse), as(KB_F32, t.peak)};
    kbtest::run_device(kernel_table<Attention>(), attrs(c), {&t.q, &t.k, &t.v, &t.cu}, out);
    EXPECT_TRUE(std::isnan(out[0].at(8 * 69)));
    EXPECT_TRUE(std::isnan(out[1].at(69)));
    EXPECT_FALSE(std::isnan(out[0].at(8 * 68)));
  }
}

// Tiles of one document reach into the rows of the next, which count with a factor of 0.
TEST(Attention, NanStaysInItsDocument) {
  KB_NEEDS_DEVICE();
  const Case c{{2, 1, 64, 64}, {0, 70, 300}, 300, true, 0.125, 1};
  Tensors t = make(c, KB_BF16);
  for (Array* x : {&t.q, &t.k, &t.v, &t.up})
    for (int64_t i = x->size() * 70 / 300; i < x->size(); ++i) x->set(i, NAN);
  const Array o = as(KB_BF16, t.o), lse = as(KB_F32, t.lse);
  const auto finite = [](const Array& x, const char* what) {
    for (int64_t i = 0; i < x.size() * 70 / 300; ++i) ASSERT_TRUE(std::isfinite(x.at(i))) << what << " at " << i;
  };
  for (const kb_kernel* k : {kernel_table<Attention>(), kernel_table<AttentionWgmma>()}) {
    std::vector<Array> out{array(KB_BF16, shape_of(t.o.type)), as(KB_F32, t.lse), as(KB_F32, t.peak)};
    kbtest::run_device(k, attrs(c), {&t.q, &t.k, &t.v, &t.cu}, out);
    finite(out[0], k->name);
  }
  for (const kb_kernel* k : {kernel_table<AttentionBackward>(), kernel_table<AttentionBackwardWgmma>()}) {
    std::vector<Array> out{t.q, t.k, t.v};
    kbtest::run_device(k, attrs(c), {&t.q, &t.k, &t.v, &t.cu, &o, &lse, &t.up}, out);
    for (const Array& x : out) finite(x, k->name);
  }
}

// ---- serving
TEST(AttentionCached, PiecesOfASequenceEqualTheWhole) {
  KB_NEEDS_DEVICE();
  Worst worst{"cached o of f32, bf16", {}};
  for (uint32_t dtype : {KB_F32, KB_BF16})
    for (const Heads& s :
         {Heads{4, 4, 32, 16}, Heads{2, 2, 5, 3}, Heads{8, 2, 16, 24}, Heads{17, 1, 576, 576}, Heads{5, 1, 9, 1000}}) {
      const int64_t length = 400, capacity = 530;
      const Case c{s, {0, double(length)}, length, true, 0.8 / std::sqrt(double(s.d)), 1};
      const Tensors t = make(c, dtype, false);
      const int64_t kw = s.g * s.d, vw = s.g * s.e, qw = s.h * s.d, ow = s.h * s.e;
      std::vector<Array> kc{array(dtype, {3, capacity, s.g, s.d})}, vc{array(dtype, {3, capacity, s.g, s.e})};
      const auto rows = [&](const Array& x, uint32_t type, int64_t from, int64_t n, int64_t width, const Shape& shape) {
        Array y = array(type, shape);
        for (int64_t i = 0; i < n * width; ++i) y.set(i, x.at(from * width + i));
        return y;
      };
      kbtest::Options keep;
      keep.accumulate = 1;  // the harness leaves the buffer as it is: the cache goes in as the output
      int64_t at = 0;
      for (int64_t n : {300, 1, 1, 5, 93}) {
        const Array q = rows(t.q, dtype, at, n, qw, {n, s.h, s.d}), k = rows(t.k, dtype, at, n, kw, {n, s.g, s.d});
        const Array v = rows(t.v, dtype, at, n, vw, {n, s.g, s.e});
        // documents 0 and 2 are empty; document 1 lives in slot 2
        const Array cu = array(KB_I32, {4}, {0, 0, double(n), double(n)}),
                    past = array(KB_I32, {3}, {9, double(at), 7});
        const Array slot = array(KB_I32, {3}, {0, 2, 1}), kin = kc[0], vin = vc[0];
        kbtest::run_device(kernel_table<CacheAppend>(), {}, {&kin, &k, &cu, &past, &slot}, kc, keep);
        kbtest::run_device(kernel_table<CacheAppend>(), {}, {&vin, &v, &cu, &past, &slot}, vc, keep);
        std::vector<Array> o{array(dtype, {n, s.h, s.e})};
        kbtest::run_device(kernel_table<AttentionCached>(), {default_attr("scale", c.scale)},
                           {&q, &kc[0], &vc[0], &cu, &past, &slot}, o);
        EXPECT_LT(worst(dtype == KB_BF16, kbtest::relative_error(o[0], rows(t.o, KB_F64, at, n, ow, {n, s.h, s.e}))),
                  tolerance(dtype))
            << s.h << " heads at " << at;
        at += n;
      }
      for (int64_t i = 0; i < 2 * capacity * kw; ++i) ASSERT_EQ(kc[0].at(i), 0) << "a row of another slot was written";
    }
}
// Latent attention: the values are the keys, one tensor, and the kernel then reads it once.
TEST(AttentionCached, ValuesThatAreTheKeysGiveTheSameBits) {
  KB_NEEDS_DEVICE();
  for (const int64_t width : {64, 128, 320, 576}) {
    const int64_t tokens = 40, heads = 6, capacity = 300;
    const Array q = normal(KB_BF16, {tokens, heads, width}, 1, 0.3), k = normal(KB_BF16, {2, capacity, 1, width}, 2);
    const Array cu = array(KB_I32, {3}, {0, 1, 40}), past = array(KB_I32, {2}, {270, 200}), none = absent();
    std::vector<Array> o{array(KB_BF16, {tokens, heads, width})};
    kbtest::run_device(kernel_table<AttentionCached>(), {default_attr("scale", 0.1)}, {&q, &k, &k, &cu, &past, &none},
                       o);
    kbtest::DeviceBytes dq(q.bytes.size()), dk(k.bytes.size()), dcu(12), dpast(8), out(o[0].bytes.size());
    dq.from(q.bytes.data()), dk.from(k.bytes.data()), dcu.from(cu.bytes.data()), dpast.from(past.bytes.data());
    CachedAttentionArgs a{tokens,
                          2,
                          heads,
                          1,
                          width,
                          width,
                          2,
                          capacity,
                          0.1f,
                          true,
                          dq.data(),
                          dk.data(),
                          dk.data(),
                          static_cast<const int32_t*>(dcu.data()),
                          static_cast<const int32_t*>(dpast.data()),
                          nullptr,
                          out.data(),
                          nullptr};
    kbtest::DeviceBytes workspace(cached_attention_bytes(a));
    a.workspace = workspace.data();
    cached_attention(a, kbtest::cuda_stream());
    KB_CUDA_OK(cudaStreamSynchronize(kbtest::cuda_stream()));
    std::vector<char> got(o[0].bytes.size());
    out.to(got.data());
    EXPECT_EQ(got, o[0].bytes) << width;
  }
}
TEST(AttentionCached, WithoutSlotsDocumentDUsesRowDAndRowsOfNoDocumentAreZero) {
  KB_NEEDS_DEVICE();
  const Array q = normal(KB_F32, {3, 2, 4}, 1), k = normal(KB_F32, {2, 5, 1, 4}, 2),
              v = normal(KB_F32, {2, 5, 1, 4}, 3);
  const Array cu = array(KB_I32, {3}, {0, 1, 2}), past = array(KB_I32, {2}, {4, 0}), none = absent();
  std::vector<Array> o{array(KB_F32, {3, 2, 4})};
  kbtest::run_device(kernel_table<AttentionCached>(), {default_attr("scale", 0.5)}, {&q, &k, &v, &cu, &past, &none}, o);
  for (int64_t x = 0; x < 4; ++x) {
    EXPECT_NEAR(o[0].at(8 + x), v.at(20 + x), 1e-6);  // document 1 sees its only key
    EXPECT_NEAR(o[0].at(12 + x), v.at(20 + x), 1e-6);
    EXPECT_EQ(o[0].at(16 + x), 0);
    EXPECT_EQ(o[0].at(20 + x), 0);
  }
}

}  // namespace
}  // namespace kb::cuda
