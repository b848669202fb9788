// Attention against the plain loops. Tolerances: double 1e-12. Float 3e-6 in norm: logits of size 10 carry 1e-6 each.
#include <gtest/gtest.h>

#include "attention.h"
#include "cached_attention.h"
#include "reference.h"
#include "tests/support/kernel_call.h"

namespace kb::cpu {
namespace {
using kbtest::absent;
using kbtest::Array;
using kbtest::array;
using kbtest::normal;
using reference::Heads;

double tolerance(uint32_t dtype) { return dtype == KB_F64 ? 1e-12 : 3e-6; }

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
    all.push_back({{6, 2, 17, 9}, {0, 63, 128, 193}, 200, causal, 0.25, 1});      // grouped heads, ragged tiles
    all.push_back({{70, 1, 24, 16}, {0, 3, 12}, 12, causal, 0.2, 1});             // more heads than a tile has columns
    all.push_back({{3, 1, 64, 65}, {0, 127}, 127, causal, 0.125, 1});
    all.push_back({{2, 1, 16, 16}, {0, 100}, 100, causal, 1, 1e3});  // logits of about 1e4
    all.push_back({{1, 1, 8, 8}, {0, 700}, 700, causal, 0.3, 1});    // one pair for three threads
  }
  return all;
}
std::vector<kb_attr> attrs(const Case& c) { return {default_attr("scale", c.scale), default_attr("causal", c.causal)}; }

struct Tensors {
  Array q, k, v, cu, o, lse, peak;
};
Tensors make(const Case& c, uint32_t dtype) {
  Tensors t{normal(dtype, {c.tokens, c.s.h, c.s.d}, 1, c.size),
            normal(dtype, {c.tokens, c.s.g, c.s.d}, 2),
            normal(dtype, {c.tokens, c.s.g, c.s.e}, 3),
            array(KB_I32, {int64_t(c.cu.size())}, c.cu),
            array(dtype, {c.tokens, c.s.h, c.s.e}),
            array(dtype, {c.tokens, c.s.h}),
            array(dtype, {c.s.h})};
  floats(dtype, [&]<class T>() {
    reference::attention<T>(c.s, t.cu.data<int32_t>(), int64_t(c.cu.size()) - 1, c.causal, c.scale, t.q.data<T>(),
                            t.k.data<T>(), t.v.data<T>(), t.o.data<T>(), t.lse.data<T>(), t.peak.data<T>());
  });
  return t;
}
// A float logit of 1e4 is off by 1e-3, and so is its probability, whatever the algorithm.
double allowed(const Case& c, uint32_t dtype) { return tolerance(dtype) * std::max(1.0, c.size); }

TEST(Attention, EqualsThePlainLoops) {
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (const Case& c : cases()) {
      Tensors t = make(c, dtype);
      std::vector<Array> out{t.o, t.lse, t.peak};
      kbtest::run(kernel_table<Attention>(), attrs(c), {&t.q, &t.k, &t.v, &t.cu}, out);
      EXPECT_LT(kbtest::relative_error(out[0], t.o), allowed(c, dtype)) << c.tokens << " tokens, causal " << c.causal;
      EXPECT_LT(kbtest::relative_error(out[1], t.lse), tolerance(dtype)) << c.tokens;
      EXPECT_LT(kbtest::relative_error(out[2], t.peak), tolerance(dtype)) << c.tokens;
    }
}

TEST(Attention, GivesTheSameBitsForAnyThreadCountAndWhenOutputsAreUnwanted) {
  const Case c{{6, 2, 17, 9}, {0, 63, 128, 193}, 200, true, 0.25, 1};
  Tensors t = make(c, KB_F32);
  std::vector<Array> all{t.o, t.lse, t.peak}, one = all;
  kbtest::run(kernel_table<Attention>(), attrs(c), {&t.q, &t.k, &t.v, &t.cu}, all);
  kbtest::Options o;
  o.threads = 1;
  kbtest::run(kernel_table<Attention>(), attrs(c), {&t.q, &t.k, &t.v, &t.cu}, one, o);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(all[i].bytes, one[i].bytes) << i;
  for (uint64_t unwanted = 1; unwanted < 8; ++unwanted) {
    std::vector<Array> part = all;
    o.unwanted = unwanted;
    kbtest::run(kernel_table<Attention>(), attrs(c), {&t.q, &t.k, &t.v, &t.cu}, part, o);
    for (size_t i = 0; i < 3; ++i)
      if (!(unwanted >> i & 1)) {
        EXPECT_EQ(all[i].bytes, part[i].bytes) << i << " of " << unwanted;
      }
  }
}

TEST(Attention, NanInAQueryReachesItsOutput) {
  const Case c{{1, 1, 4, 4}, {0, 70}, 70, true, 0.5, 1};
  Tensors t = make(c, KB_F32);
  t.q.set(4 * 69, NAN);
  std::vector<Array> out{t.o, t.lse, t.peak};
  kbtest::run(kernel_table<Attention>(), attrs(c), {&t.q, &t.k, &t.v, &t.cu}, out);
  EXPECT_TRUE(std::isnan(out[0].at(4 * 69)));
  EXPECT_TRUE(std::isnan(out[1].at(69)));
  EXPECT_FALSE(std::isnan(out[0].at(4 * 68)));
}

TEST(Attention, NamesABorderThatIsOutOfOrder) {
  const Case c{{1, 1, 4, 4}, {0, 5}, 5, true, 0.5, 1};
  Tensors t = make(c, KB_F32);
  t.cu.set(1, 6);
  std::vector<Array> out{t.o, t.lse, t.peak};
  try {
    kbtest::run(kernel_table<Attention>(), attrs(c), {&t.q, &t.k, &t.v, &t.cu}, out);
    FAIL() << "a border past the tokens was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("border 1 of the documents must lie in [0, 5] but is 6"), std::string::npos)
        << e.what();
  }
}

// threads: 1 takes the single pass, 7 the two passes unless there are many heads and documents.
TEST(AttentionBackward, EqualsThePlainLoopsInOnePassAndInTwo) {
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (const Case& c : cases())
      for (int32_t threads : {1, 2, 7}) {
        Tensors t = make(c, dtype);
        const Array up = normal(dtype, {c.tokens, c.s.h, c.s.e}, 4);
        std::vector<Array> want{array(KB_F64, shape_of(t.q.type)), array(KB_F64, shape_of(t.k.type)),
                                array(KB_F64, shape_of(t.v.type))};
        floats(dtype, [&]<class T>() {
          reference::attention_backward<T>(c.s, t.cu.data<int32_t>(), int64_t(c.cu.size()) - 1, c.causal, c.scale,
                                           t.q.data<T>(), t.k.data<T>(), t.v.data<T>(), up.data<T>(),
                                           want[0].data<double>(), want[1].data<double>(), want[2].data<double>());
        });
        std::vector<Array> out{t.q, t.k, t.v};
        kbtest::Options o;
        o.threads = threads;
        kbtest::run(kernel_table<AttentionBackward>(), attrs(c), {&t.q, &t.k, &t.v, &t.cu, &t.o, &t.lse, &up}, out, o);
        // dq and dk of one token are exactly 0: compare with the size of the upstream gradient
        for (size_t i = 0; i < 3; ++i)
          EXPECT_LT(kbtest::relative_error(out[i], want[i], c.tokens == 1 ? 1 : 1e-30), 2 * allowed(c, dtype))
              << "d"
              << "qkv"[i] << " of " << c.tokens << " tokens, causal " << c.causal << ", threads " << threads;
      }
}

TEST(AttentionBackward, AQueryThatSeesOneKeyHasNoGradientAtAll) {
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (bool causal : {true, false}) {
      const Case c{{3, 3, 40, 24}, {0, 1, 2, 3, 4}, 4, causal, 0.3, 1};
      Tensors t = make(c, dtype);
      const Array up = normal(dtype, {c.tokens, c.s.h, c.s.e}, 4);
      std::vector<Array> out{t.q, t.k, t.v};
      kbtest::run(kernel_table<AttentionBackward>(), attrs(c), {&t.q, &t.k, &t.v, &t.cu, &t.o, &t.lse, &up}, out);
      for (size_t i = 0; i < 2; ++i)
        for (int64_t x = 0; x < c.tokens * c.s.h * c.s.d; ++x) ASSERT_EQ(out[i].at(x), 0) << "qk"[i] << " at " << x;
      EXPECT_LT(kbtest::relative_error(out[2], up), tolerance(dtype));
    }
}

TEST(AttentionBackward, ComputesWhatIsWantedAlone) {
  const Case c{{6, 2, 17, 9}, {0, 63, 128, 193}, 200, true, 0.25, 1};
  Tensors t = make(c, KB_F64);
  const Array up = normal(KB_F64, {c.tokens, c.s.h, c.s.e}, 4);
  std::vector<Array> all{t.q, t.k, t.v};
  kbtest::run(kernel_table<AttentionBackward>(), attrs(c), {&t.q, &t.k, &t.v, &t.cu, &t.o, &t.lse, &up}, all);
  for (uint64_t unwanted = 1; unwanted < 8; ++unwanted) {
    std::vector<Array> part{t.q, t.k, t.v};
    kbtest::Options o;
    o.unwanted = unwanted;
    kbtest::run(kernel_table<AttentionBackward>(), attrs(c), {&t.q, &t.k, &t.v, &t.cu, &t.o, &t.lse, &up}, part, o);
    for (size_t i = 0; i < 3; ++i)
      if (!(unwanted >> i & 1)) {
        EXPECT_LT(kbtest::relative_error(part[i], all[i]), 1e-13) << i << " of " << unwanted;
      }
  }
}

// ---- serving
TEST(AttentionCached, PiecesOfASequenceEqualTheWhole) {
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (const Heads& s :
         {Heads{4, 4, 32, 16}, Heads{2, 2, 5, 3}, Heads{8, 2, 16, 24}, Heads{72, 1, 24, 16}, Heads{5, 1, 9, 9}}) {
      const int64_t length = 150, capacity = 160;
      const Case c{s, {0, double(length)}, length, true, 0.3, 1};
      const Tensors t = make(c, dtype);
      const int64_t kw = s.g * s.d, vw = s.g * s.e, qw = s.h * s.d, ow = s.h * s.e;
      std::vector<Array> kc{array(dtype, {3, capacity, s.g, s.d})}, vc{array(dtype, {3, capacity, s.g, s.e})};
      const auto rows = [&](const Array& x, int64_t from, int64_t n, int64_t width, const Shape& shape) {
        Array y = array(dtype, shape);
        for (int64_t i = 0; i < n * width; ++i) y.set(i, x.at(from * width + i));
        return y;
      };
      kbtest::Options keep;
      keep.accumulate = 1;  // the harness leaves the buffer as it is: the cache goes in as the output
      int64_t at = 0;
      for (int64_t n : {70, 1, 1, 5, 73}) {
        const Array q = rows(t.q, at, n, qw, {n, s.h, s.d}), k = rows(t.k, at, n, kw, {n, s.g, s.d});
        const Array v = rows(t.v, at, n, vw, {n, s.g, s.e});
        // documents 0 and 2 are empty; document 1 lives in slot 2
        const Array cu = array(KB_I32, {4}, {0, 0, double(n), double(n)}),
                    past = array(KB_I32, {3}, {9, double(at), 7});
        const Array slot = array(KB_I32, {3}, {0, 2, 1}), kin = kc[0], vin = vc[0];
        kbtest::run(kernel_table<CacheAppend>(), {}, {&kin, &k, &cu, &past, &slot}, kc, keep);
        kbtest::run(kernel_table<CacheAppend>(), {}, {&vin, &v, &cu, &past, &slot}, vc, keep);
        std::vector<Array> o{array(dtype, {n, s.h, s.e})};
        kbtest::run(kernel_table<AttentionCached>(), {default_attr("scale", c.scale)},
                    {&q, &kc[0], &vc[0], &cu, &past, &slot}, o);
        EXPECT_LT(kbtest::relative_error(o[0], rows(t.o, at, n, ow, {n, s.h, s.e})), tolerance(dtype))
            << s.h << " heads at " << at;
        at += n;
      }
      for (int64_t i = 0; i < 2 * capacity * kw; ++i) ASSERT_EQ(kc[0].at(i), 0) << "a row of another slot was written";
    }
}

TEST(AttentionCached, WithoutSlotsDocumentDUsesRowD) {
  const Heads s{2, 1, 4, 4};
  const Array q = normal(KB_F64, {2, 2, 4}, 1), k = normal(KB_F64, {2, 5, 1, 4}, 2),
              v = normal(KB_F64, {2, 5, 1, 4}, 3);
  const Array cu = array(KB_I32, {3}, {0, 1, 2}), past = array(KB_I32, {2}, {4, 0}), none = absent();
  std::vector<Array> o{array(KB_F64, {2, 2, 4})};
  kbtest::run(kernel_table<AttentionCached>(), {default_attr("scale", 0.5)}, {&q, &k, &v, &cu, &past, &none}, o);
  for (int64_t x = 0; x < 4; ++x) {
    EXPECT_NEAR(o[0].at(8 + x), v.at(20 + x), 1e-15);  // document 1 sees its only key
    EXPECT_NEAR(o[0].at(12 + x), v.at(20 + x), 1e-15);
  }
  std::vector<double> p;
  double top;
  for (int64_t h = 0; h < s.h; ++h) {
    reference::probabilities(q.data<double>() + h * 4, k.data<double>(), 4, 4, 5, 0.5, p, top);
    for (int64_t x = 0; x < 4; ++x) {
      double sum = 0;
      for (int64_t j = 0; j < 5; ++j) sum += p[size_t(j)] * v.at(j * 4 + x);
      EXPECT_NEAR(o[0].at(h * 4 + x), sum, 1e-14);
    }
  }
}

TEST(CacheAppend, NamesTheDocumentThatIsLongerThanItsCache) {
  const Array cache = array(KB_F32, {2, 4, 3}), rows = normal(KB_F32, {3, 3}, 1);
  const Array cu = array(KB_I32, {3}, {0, 1, 3}), past = array(KB_I32, {2}, {0, 3}), none = absent();
  std::vector<Array> out{cache};
  try {
    kbtest::run(kernel_table<CacheAppend>(), {}, {&cache, &rows, &cu, &past, &none}, out);
    FAIL() << "a sequence longer than the cache was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("document 1 must fit its cache of 4 tokens but has length 5"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace kb::cpu
