// optimizer: called once a parameter: w, g (already divided and clipped; wide), lr [], step [] (wide; steps from 1) -> new w.
//   Attributes: role, blocks, flags (kb_param), and name. States: KB_STATE_OPTIMIZER, in the scope of the parameter.
//   A graph of pointwise ops only may be run by the core on any slice of the parameter; any other runs on the whole.
//   To save passes over memory: g = sum * scale [], which an op may do itself; and where the attribute `copy` is no 0, the model reads
//   w in that kb_dtype, which may be given as a second result. Whoever leaves these out gets g made, and w copied. Whoever hands a
//   changed g or w on must leave them out.
#pragma once
#include "kitbash/builder.h"

namespace kb {

struct Target {
  Value w, g, lr, step;
  int64_t role, blocks, flags;
  Value sum, scale;  // both or neither
  int64_t copy = 0;
};
template <class T>
struct Optimizer {  // T: Value or Values step(Builder&, const Target&) const
  static constexpr const char* kind = "optimizer";
  static void serve(const T& t, Builder& b) {
    const kb_attr* copy = b.given("copy");
    b.result({t.step(
        b, {b.required(0, "w"), b.required(1, "g"), b.required(2, "lr"), b.required(3, "step"), b.integer("role"),
            b.integer("blocks"), b.integer("flags"), b.in(4), b.in(5), copy ? b.integer("copy") : 0})});
  }
};
// The step of w by g, by another optimizer; p may have been changed.
inline Value step_with(Builder& b, const Slot& s, const Target& p) {
  return b.call(s, 0, {p.w, p.g, p.lr, p.step}, {{"role", p.role}, {"blocks", p.blocks}, {"flags", p.flags}})[0];
}
// The whole step left to another optimizer, p as it came: new w, and perhaps its copy.
inline Values leave_to(Builder& b, const Slot& s, const Target& p) {
  return b.call(s, 0, {p.w, p.g, p.lr, p.step, p.sum, p.scale},
                {{"role", p.role}, {"blocks", p.blocks}, {"flags", p.flags}, {"copy", p.copy}});
}

}  // namespace kb
