// RMSNorm with one weight a channel; the parameter has the name of the slot itself.
#include "kitbash/plugin.h"

struct RmsNorm : kb::Norm<RmsNorm> {
  double eps = 1e-5;

  kb::Value build(kb::Builder& b, kb::Value x) const {
    return b.rms_norm(x, b.param("", b.ones({x.dim(-1)}), kb::wide_vector), eps);
  }
};
KITBASH_SCHEMA(RmsNorm, field("eps", &Self::eps, "added to the mean square").range(0, 1))

KITBASH_PLUGIN("norm-rmsnorm", "0.1.0", "Apache-2.0", component<RmsNorm>("rmsnorm"))
