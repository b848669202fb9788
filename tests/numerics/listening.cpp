// A gated unit that watches its gate: the mean square goes to the loss with a factor, and to the log as a figure.
#include "kitbash/plugin.h"

struct Listening : kb::Activation<Listening> {
  double factor = 0.25;
  kb::Value build(kb::Builder& b, kb::Value gate, kb::Value up) const {
    const kb::Value square = b.sum(b.reshape(gate * gate, {-1}), 0);
    b.loss("gate_square", square * factor);
    b.report("gate_square", square);
    return b.silu(gate) * up;
  }
};
KITBASH_SCHEMA(Listening, field("factor", &Self::factor, "weight of the mean square in the loss").range(0, 100))
KITBASH_PLUGIN("test-listening", "0.1.0", "Apache-2.0", component<Listening>("listening"))
