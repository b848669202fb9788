// attention_cases.h: attention over packed documents against the plain loops in double, for every kernel on CUDA.
// Tolerances in norm: f32 3e-6 (logits of size 10 carry 1e-6 each), bf16 6e-3 (probabilities and outputs are rounded to 8 bits).
#pragma once
#include <gtest/gtest.h>

#include "plugins/backend_cpu/reference.h"
#include "tests/support/device_call.h"

namespace kb::attention_test {
using cpu::reference::Heads;
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
inline std::vector<Case> cases() {
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
inline std::vector<kb_attr> attrs(const Case& c) {
  return {default_attr("scale", c.scale), default_attr("causal", c.causal)};
}

inline Array as(uint32_t dtype, const Array& x) {
  Array y = array(dtype, shape_of(x.type));
  for (int64_t i = 0; i < x.size(); ++i) y.set(i, x.at(i));
  return y;
}

struct Tensors {  // of dtype, and the same values as doubles; o, lse, peak in double
  Array q, k, v, cu, up;
  Array o, lse, peak, dq, dk, dv;
};
inline Tensors make(const Case& c, uint32_t dtype, bool backward = true) {
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
inline double tolerance(uint32_t dtype) { return dtype == KB_F32 ? 3e-6 : 6e-3; }
inline std::string text_of(const Case& c) {
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
inline bool finite_equal(const Array& got, const Array& want, double tolerance) {
  for (int64_t i = 0; i < want.size(); ++i)
    if (!(got.at(i) == want.at(i) ||
          std::abs(got.at(i) - want.at(i)) <= tolerance * std::max(1.0, std::abs(want.at(i)))))
      return false;
  return true;
}

inline void check_forward(const kb_kernel* k, uint32_t dtype, const Case& c, Worst& worst,
                          const kbtest::Options& options = {}) {
  const Tensors t = make(c, dtype);
  std::vector<Array> out{t.q, as(KB_F32, t.lse), as(KB_F32, t.peak)};
  out[0] = array(dtype, shape_of(t.o.type));
  kbtest::run_device(k, attrs(c), {&t.q, &t.k, &t.v, &t.cu}, out, options);
  EXPECT_LT(worst(0, kbtest::relative_error(out[0], t.o)), tolerance(dtype) * std::max(1.0, c.size)) << text_of(c);
  EXPECT_LT(worst(1, kbtest::relative_error(out[1], t.lse, 1e-3)), 3e-6 * std::max(1.0, c.size)) << text_of(c);
  EXPECT_TRUE(finite_equal(out[2], t.peak, 1e-5)) << text_of(c);
}
inline void check_backward(const kb_kernel* k, uint32_t dtype, const Case& c, Worst& worst,
                           const kbtest::Options& options = {}) {
  const Tensors t = make(c, dtype);
  const Array o = as(dtype, t.o), lse = as(KB_F32, t.lse);
  std::vector<Array> out{t.q, t.k, t.v};
  kbtest::run_device(k, attrs(c), {&t.q, &t.k, &t.v, &t.cu, &o, &lse, &t.up}, out, options);
  const Array* want[3] = {&t.dq, &t.dk, &t.dv};
  // dq and dk of one token are exactly 0: compare with the size of the upstream gradient
  for (size_t i = 0; i < 3; ++i)
    EXPECT_LT(worst(i, kbtest::relative_error(out[i], *want[i], c.tokens < 20 ? 1 : 1e-30)),
              2 * tolerance(dtype) * std::max(1.0, c.size))
        << "d"
        << "qkv"[i] << " of " << text_of(c);
}

// The reason why a kernel declines a case; empty when it takes it.
inline std::string declines(const kb_kernel* k, const Case& c, std::vector<const Array*> in,
                            bool deterministic = true) {
  std::vector<kb_tensor> ti;
  for (const Array* a : in) ti.push_back({nullptr, a->type, {}});
  const std::vector<kb_attr> at = attrs(c);
  kb_call call{};
  call.struct_size = KB_STRUCT_SIZE(kb_call, device);
  call.attr = at.data(), call.n_attr = uint32_t(at.size());
  call.in = ti.data(), call.n_in = uint32_t(ti.size());
  kb_device device = kbtest::cuda_device();
  device.deterministic = deterministic;
  call.device = &device;
  kb_error e{};
  return k->supports(&call, &e) ? e.message : "";
}

}  // namespace kb::attention_test
