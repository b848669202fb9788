// decay: z [tokens, heads, k] in wide -> log decay g <= 0, same shape, wide. May own parameters per head (A_log).
// The *range* of the result (kb_type.lo) is part of the answer: linear attentions choose their chunk path by it, and it comes
// by itself from the ops used (floor * sigmoid(..) is in [floor, 0]).
#pragma once
#include "kitbash/builder.h"

namespace kb {

template <class T>
struct Decay {  // T: Value build(Builder&, Value z) const
  static constexpr const char* kind = "decay";
  static void serve(const T& t, Builder& b) { b.result({t.build(b, b.required(0, "z"))}); }
};
inline Value log_decay(Builder& b, const Slot& s, Value z) { return b.call(s, 0, {z})[0]; }

}  // namespace kb
