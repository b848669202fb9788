// activation: gate [n, width], up [n, width] -> y [n, width]. Pointwise. No parameters, no state; finite for |x| <= 1e4.
#pragma once
#include "kitbash/builder.h"

namespace kb {

template <class T>
struct Activation {  // T: Value build(Builder&, Value gate, Value up) const
  static constexpr const char* kind = "activation";
  static void serve(const T& t, Builder& b) { b.result({t.build(b, b.required(0, "gate"), b.required(1, "up"))}); }
};
inline Value activate(Builder& b, const Slot& s, Value gate, Value up) { return b.call(s, 0, {gate, up})[0]; }

}  // namespace kb
