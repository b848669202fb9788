// A sound plugin with one of everything, used by the tests of the plugin host: two components, an op, and its CPU
// kernel.
#include "kitbash/plugin.h"

struct Linear : kb::Schedule<Linear> {  // 1 at the first step, `floor` at the end
  double floor = 0.1;
  int64_t power = 1;
  kb::Text note = "plain";
  void check() const {
    if (floor > 0.5) kb::fail("'floor' must be at most 0.5 but got ", floor);
  }
  double at(int64_t step, int64_t steps) const { return 1 - (1 - floor) * double(step) / double(steps); }
};
KITBASH_SCHEMA(Linear, field("floor", &Self::floor, "factor at the end").range(0, 1),
               field("power", &Self::power, "1: linear").range(1, 8),
               field("note", &Self::note, "words").one_of("plain", "fancy").was("remark"))

struct Half : kb::Activation<Half> {
  kb::Value build(kb::Builder&, kb::Value gate, kb::Value up) const { return 0.5 * gate * up; }
};

struct Triple {  // factor * x
  static constexpr const char* name = "sample_triple";
  double factor = 3;
  void infer(kb::Infer& s) const { s.like(s.in(0, "x")); }
};
KITBASH_ATTRS(Triple, attr("factor", &Self::factor))

struct TripleCpu {
  using Op = Triple;
  static constexpr const char* name = "reference";
  static constexpr uint32_t device = KB_CPU;
  static void launch(const kb::Call& c, const Triple& op) {
    const int64_t n = kb::elements(c.in(0));
    for (int64_t i = 0; i < n; ++i) c.put<double>(0)[i] = op.factor * c.get<double>(0)[i];
  }
};

KITBASH_PLUGIN("sample", "0.1.0", "Apache-2.0", component<Linear>("linear"), component<Half>("half"), op<Triple>(),
               kernel<TripleCpu>())
