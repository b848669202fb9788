// The decay of Kimi K3: g = floor * sigmoid(exp(A_log) z), in [floor, 0] (Kimi K3 report, section 2.1.1).
#include "kitbash/plugin.h"

struct Bounded : kb::Decay<Bounded> {
  double floor = -5;

  kb::Value build(kb::Builder& b, kb::Value z) const {  // z [tokens, heads, K]
    const int64_t heads = z.dim(1);
    const kb::Value a_log = b.param("A_log", b.zeros({heads}), kb::wide_vector);
    return floor * b.sigmoid(b.exp(b.reshape(a_log, {heads, 1})) * z);
  }
};
KITBASH_SCHEMA(Bounded, field("floor", &Self::floor, "lower bound of the log decay of one token").range(-100, 0))
KITBASH_PLUGIN("decay-bounded", "0.1.0", "Apache-2.0", component<Bounded>("bounded"))
