// optimizer: called once a parameter: w, g (already divided and clipped; wide), lr [], step [] (wide; steps from 1) -> new w.
//   Attributes: role, blocks, flags (kb_param), and name. States: KB_STATE_OPTIMIZER, in the scope of the parameter.
//   A graph of pointwise ops only may be run by the core on any slice of the parameter; any other runs on the whole.
#pragma once
#include "kitbash/builder.h"

namespace kb {

struct Target {
  Value w, g, lr, step;
  int64_t role, blocks, flags;
};
template <class T>
struct Optimizer {  // T: Value step(Builder&, const Target&) const
  static constexpr const char* kind = "optimizer";
  static void serve(const T& t, Builder& b) {
    b.result({t.step(b, {b.required(0, "w"), b.required(1, "g"), b.required(2, "lr"), b.required(3, "step"),
                         b.integer("role"), b.integer("blocks"), b.integer("flags")})});
  }
};
inline Value step_with(Builder& b, const Slot& s, const Target& p) {
  return b.call(s, 0, {p.w, p.g, p.lr, p.step}, {{"role", p.role}, {"blocks", p.blocks}, {"flags", p.flags}})[0];
}

}  // namespace kb
