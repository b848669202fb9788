// SiTU-GLU: [beta tanh(a / beta) sigmoid(a)] * [linear_beta tanh(u / linear_beta)], computed wide.
#include "kitbash/plugin.h"

struct SituGlu : kb::Activation<SituGlu> {
  double beta = 4, linear_beta = 25;

  kb::Value build(kb::Builder& b, kb::Value gate, kb::Value up) const {
    const kb::Value a = b.wide(gate), u = b.wide(up);
    const kb::Value bounded = beta * b.tanh((1 / beta) * a) * b.sigmoid(a);
    const kb::Value linear = linear_beta > 0 ? linear_beta * b.tanh((1 / linear_beta) * u) : u;
    return b.narrow(bounded * linear);
  }
};
KITBASH_SCHEMA(SituGlu, field("beta", &Self::beta, "bound of the gate branch").range(0.1, 1000),
               field("linear_beta", &Self::linear_beta, "bound of the linear branch; 0: none").range(0, 1000))

KITBASH_PLUGIN("activation-situ-glu", "0.1.0", "Apache-2.0", component<SituGlu>("situ-glu"))
