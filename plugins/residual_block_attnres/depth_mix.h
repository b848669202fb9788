// depth_mix.h: the softmax mixture over depth (README.md), its backward op, and their CPU kernels.
#pragma once
#include "kitbash/plugin.h"

// sources v_0 .. v_{n-1} [tokens, d] of one type, norm [d] wide, query [d] wide -> h like v_0, weights [tokens, n] wide
//   logit_i = (norm * query) . v_i * rsqrt(mean(v_i^2) + eps);  weights = softmax(logits);  h = sum_i weights_i v_i
struct DepthMix {
  static constexpr const char* name = "depth_mix";
  static constexpr int64_t kMaxSources = KB_MAX_OUT - 2;  // the backward op returns one gradient a source and two more
  double eps = 1e-5;

  void infer(kb::Infer& s) const;
  void gradient(kb::Grad& g) const;
  double flops(const kb::Call& c) const { return 6.0 * double(c.n_in() - 2) * double(kb::elements(c.in(0))); }
};
KITBASH_ATTRS(DepthMix, attr("eps", &Self::eps))

// sources, norm, query, dh -> dsource_i like v_i, dnorm [d] wide, dquery [d] wide; each may be unwanted or accumulate.
// Logits and weights are computed again: every source has to be read for dh . v_i in any case.
struct DepthMixBackward {
  static constexpr const char* name = "depth_mix_backward";
  double eps = 1e-5;

  void infer(kb::Infer& s) const;
  double flops(const kb::Call& c) const { return 14.0 * double(c.n_in() - 3) * double(kb::elements(c.in(0))); }
};
KITBASH_ATTRS(DepthMixBackward, attr("eps", &Self::eps))

struct DepthMixCpu {
  using Op = DepthMix;
  static constexpr const char* name = "simd";
  static constexpr int device = KB_CPU;
  static void supports(const kb::Call& c, const Op&) {
    kb::floats(c.in(0).dtype, []<class T>() {});
  }
  static uint64_t workspace(const kb::Call& c, const Op&) { return uint64_t(c.dim(0, 1)) * 8; }  // norm * query
  static void launch(const kb::Call& c, const Op& op);
};

struct DepthMixBackwardCpu {
  using Op = DepthMixBackward;
  static constexpr const char* name = "simd";
  static constexpr int device = KB_CPU;
  static constexpr uint32_t accumulates = (1u << KB_MAX_OUT) - 1;
  // Tokens are cut into parts by shape alone, so that the sums do not depend on the number of threads.
  static constexpr int64_t kParts = 16;
  static void supports(const kb::Call& c, const Op&) {
    kb::floats(c.in(0).dtype, []<class T>() {});
  }
  static uint64_t workspace(const kb::Call& c, const Op&) { return uint64_t(c.dim(0, 1)) * 8 * (1 + kParts); }
  static void launch(const kb::Call& c, const Op& op);
};
