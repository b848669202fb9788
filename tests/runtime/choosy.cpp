// A plugin of kernels for the base op `erf`, which says no in words to all but one shape, and an op that has no kernel at all.
#include "kitbash/ops.h"
#include "kitbash/plugin.h"

struct OnlyEight {
  using Op = kb::ops::Erf;
  static constexpr const char* name = "only-eight";
  static constexpr uint32_t device = KB_CPU;
  static constexpr int32_t priority = 50;
  static void supports(const kb::Call& c, const Op&) {
    if (kb::elements(c.in(0)) != 8) kb::fail("wants 8 elements but got ", kb::elements(c.in(0)));
  }
  static void launch(const kb::Call& c, const Op&) {
    for (int64_t i = 0; i < 8; ++i) c.put<float>(0)[i] = 8;
  }
};

struct Nowhere {
  static constexpr const char* name = "choosy_nowhere";
  void infer(kb::Infer& s) const { s.like(s.in(0, "x")); }
};
struct Never {  // has a kernel, which takes nothing
  static constexpr const char* name = "choosy_never";
  void infer(kb::Infer& s) const { s.like(s.in(0, "x")); }
};
struct NeverCpu {
  using Op = Never;
  static constexpr const char* name = "plain";
  static constexpr uint32_t device = KB_CPU;
  static void supports(const kb::Call&, const Op&) { kb::fail("never runs"); }
  static void launch(const kb::Call&, const Op&) {}
};
// Writes every row of its bounds, used or not, as a careless kernel may.
struct Careless {
  static constexpr const char* name = "choosy_careless";
  void infer(kb::Infer& s) const { s.like(s.in(0, "x")); }
};
struct CarelessCpu {
  using Op = Careless;
  static constexpr const char* name = "plain";
  static constexpr uint32_t device = KB_CPU;
  static void launch(const kb::Call& c, const Op&) {
    for (int64_t i = 0; i < kb::elements(c.out(0)); ++i) c.put<float>(0)[i] = 7;
  }
};

KITBASH_PLUGIN("choosy", "0.1.0", "Apache-2.0", kernel<OnlyEight>(), op<Nowhere>(), op<Never>(), kernel<NeverCpu>(),
               op<Careless>(), kernel<CarelessCpu>())
