// AdamW with decoupled weight decay, one op a parameter.
#include "adamw_step.h"
using kb::Value;

struct AdamW : kb::Optimizer<AdamW> {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0.1;

  kb::Values step(kb::Builder& b, const kb::Target& p) const {
    const kb::Shape s = p.w.shape();
    const bool scaled = bool(p.sum);
    const Value m = b.state("m", KB_STATE_OPTIMIZER, s), v = b.state("v", KB_STATE_OPTIMIZER, s);
    const double shrink = p.flags & KB_NO_DECAY ? 0 : decay;
    kb::Values in{p.w, scaled ? p.sum : p.g, m, v, p.lr, p.step};
    if (scaled) in.push_back(p.scale);
    kb::Values now = b.emit_n("adamw_step", in,
                              {{"beta1", beta1}, {"beta2", beta2}, {"eps", eps}, {"decay", shrink}, {"copy", p.copy}});
    b.write(m, now[1]);
    b.write(v, now[2]);
    now.erase(now.begin() + 1, now.begin() + 3);  // w, and its copy where one is read
    return now;
  }
};
KITBASH_SCHEMA(AdamW, field("beta1", &Self::beta1, "memory of the mean").range(0.0, 0.9999999),
               field("beta2", &Self::beta2, "memory of the square").range(0.0, 0.9999999),
               field("eps", &Self::eps, "added to the root").range(0, 1),
               field("decay", &Self::decay, "decoupled weight decay; none for norms and biases").range(0, 10))

KITBASH_PLUGIN("optimizer-adamw", "0.1.0", "Apache-2.0", component<AdamW>("adamw"), op<AdamwStep>(), kernel<AdamwCpu>())
