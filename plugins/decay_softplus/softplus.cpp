// The decay of Kimi Linear: g = -exp(A_log) softplus(z), with no lower bound (Kimi Linear report, section 3; from
// Mamba-2).
#include "kitbash/plugin.h"

struct Softplus : kb::Decay<Softplus> {
  kb::Value build(kb::Builder& b, kb::Value z) const {  // z [tokens, heads, K]
    const int64_t heads = z.dim(1);
    const kb::Value a_log = b.param("A_log", b.log(b.uniform({heads}, 1, 16)), kb::wide_vector);
    return -(b.exp(b.reshape(a_log, {heads, 1})) * b.softplus(z));
  }
};
KITBASH_PLUGIN("decay-softplus", "0.1.0", "Apache-2.0", component<Softplus>("softplus"))
