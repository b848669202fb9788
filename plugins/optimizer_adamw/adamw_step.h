// adamw_step.h: the op of one AdamW step, in place, and its CPU kernel.
#pragma once
#include "kitbash/plugin.h"

// w, g, m, v [..] of one wide type, lr [], step [] (from 1), scale? [] (of g) -> w, m, v, changed in place, and w in the type
// `copy` (a kb_dtype), unless that is 0.
struct AdamwStep {
  static constexpr const char* name = "adamw_step";
  static constexpr uint32_t traits = KB_POINTWISE;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1;
  int64_t copy = 0;

  void infer(kb::Infer& s) const {
    const kb_type& w = s.in(0, "w");
    if (w.dtype != KB_F32 && w.dtype != KB_F64)
      kb::fail("w must be f32 or f64 but got ", kb::dtype_name(w.dtype), "; step the wide copy of the parameter");
    static constexpr const char* names[] = {"w", "g", "m", "v", "lr", "step", "scale"};
    for (uint32_t i = 1; i < (s.has(6) ? 7 : 6); ++i) {
      const kb_type& t = s.in(i, i < 4 ? w.rank : 0, names[i]);
      s.dtype(t, w.dtype, names[i]);
      for (int k = 0; k < t.rank; ++k) s.same(t.shape[k], w.shape[k], names[i]);
    }
    for (int o = 0; o < 3; ++o) {
      kb_type& t = s.like(w);
      t.extent = w.extent;
      s.in_place(o, o ? o + 1 : 0);
    }
    if (!copy) return;
    if (copy != KB_BF16) kb::fail("copy must be 0 or bf16 but got ", kb::dtype_name(uint32_t(copy)));
    s.like(w).dtype = uint32_t(copy);
  }
  double flops(const kb::Call& c) const { return 14.0 * double(kb::elements(c.in(0))); }
};
KITBASH_ATTRS(AdamwStep, attr("beta1", &Self::beta1), attr("beta2", &Self::beta2), attr("eps", &Self::eps),
              attr("decay", &Self::decay), attr("copy", &Self::copy))

struct AdamwCpu {
  using Op = AdamwStep;
  static constexpr const char* name = "simd";
  static constexpr int device = KB_CPU;
  static void supports(const kb::Call& c, const AdamwStep& op) {
    kb::floats(c.in(0).dtype, []<class T>() {});
    if (op.copy) kb::fail("has no narrow copies on the cpu");
  }
  static void launch(const kb::Call& c, const AdamwStep& op);
};

// The factors that are the same for all elements of a step.
struct AdamwFactors {
  double beta1, beta2, eps;
  double mean, square;  // 1 / (1 - beta1^t), 1 / (1 - beta2^t)
  double rate, decay;
  AdamwFactors(const AdamwStep& o, double lr, double t)
      : beta1(o.beta1),
        beta2(o.beta2),
        eps(o.eps),
        mean(1 / -std::expm1(t * std::log(o.beta1))),
        square(1 / -std::expm1(t * std::log(o.beta2))),
        rate(lr),
        decay(o.decay) {}
};
