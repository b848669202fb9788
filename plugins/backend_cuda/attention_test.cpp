// attention_test.cpp: our own attention kernels, over documents and over a cache.
#include "attention_cuda.h"
#include "attention_kernels.h"
#include "tests/support/attention_cases.h"

namespace kb::cuda {
namespace {
using namespace attention_test;
using kbtest::absent;

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

TEST(AttentionWgmma, EqualsThePlainLoops) {
  KB_NEEDS_DEVICE();
  Worst worst{"wgmma o, lse", {}}, worst_back{"wgmma dq, dk, dv", {}};
  for (const Case& c : cases()) {
    const Tensors t = make(c, KB_BF16);
    const Array o = as(KB_BF16, t.o), lse = as(KB_F32, t.lse);
    if (declines(kernel_table<AttentionWgmma>(), c, {&t.q, &t.k, &t.v, &t.cu}).empty())
      check_forward(kernel_table<AttentionWgmma>(), KB_BF16, c, worst);
    if (declines(kernel_table<AttentionBackwardWgmma>(), c, {&t.q, &t.k, &t.v, &t.cu, &o, &lse, &t.up}).empty())
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
