// The dense gated feed-forward layer: y = w2 activation(w1 x, w3 x).
#include "kitbash/plugin.h"
using kb::Value;

struct Dense : kb::Ffn<Dense> {
  int64_t width = 384;
  double std = 0.02;
  kb::Slot activation = "situ-glu";

  Value build(kb::Builder& b, Value x, Value) const {
    const int64_t d = x.dim(1);
    const Value gate = b.linear(x, b.param("w1", b.normal({width, d}, std)));  // [tokens, width]
    const Value up = b.linear(x, b.param("w3", b.normal({width, d}, std)));
    return b.linear(kb::activate(b, activation, gate, up), b.param("w2", b.normal({d, width}, std)));
  }
};
KITBASH_SCHEMA(Dense, field("width", &Self::width, "hidden width").range(1, 1 << 20),
               field("std", &Self::std, "standard deviation at the start").range(0, 10),
               slot("activation", &Self::activation, "activation", "of the hidden layer"))

KITBASH_PLUGIN("ffn-dense", "0.1.0", "Apache-2.0", component<Dense>("dense"))
