// SwiGLU: y = silu(gate) * up.
#include "kitbash/plugin.h"

struct Swiglu : kb::Activation<Swiglu> {
  kb::Value build(kb::Builder& b, kb::Value gate, kb::Value up) const { return b.silu(gate) * up; }
};

KITBASH_PLUGIN("activation-swiglu", "0.1.0", "Apache-2.0", component<Swiglu>("swiglu"))
