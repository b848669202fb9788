// attention: token mixing.
//   verb 0, forward: x [tokens, dim] (already normalised), sequence -> y [tokens, dim]
//     train, eval       causal inside a document; row t depends on rows <= t of its document only
//     prefill, decode   the same numbers as eval over the whole document, with the past read from own SEQUENCE/TOKEN states,
//                       and those states written
//   verb 1, recur (linear attentions only): q, k [tokens, heads, key_dim], v [tokens, heads, value_dim] after the short
//     convolutions, z [tokens, heads, key_dim] decay logits, beta [tokens, heads] logits, s0 [documents, heads, key_dim,
//     value_dim] or absent, sequence -> o like v, state like s0. The recurrence with its own norms and gates, and nothing else:
//     what a hybrid may reuse, and what `kitbash probe` compares.
// Conformance: packed documents equal separate ones; prefill in pieces + decode = eval; gradients against differences.
#pragma once
#include "kitbash/kinds/sequence.h"

namespace kb {

struct Recurrence {
  Value q, k, v, z, beta, s0;
};
// T: Value build(Builder&, Value x, const Sequence&) const; Values recur(Builder&, Recurrence, Sequence)
template <class T>
struct Attention {
  static constexpr const char* kind = "attention";
  static void serve(const T& t, Builder& b) {
    if (b.verb() == 0) return b.result({t.build(b, b.required(0, "x"), b.sequence(1))});
    if constexpr (requires { t.recur(b, Recurrence{}, Sequence{}); }) {
      if (b.verb() == 1)
        return b.result(t.recur(b, {b.in(0), b.in(1), b.in(2), b.in(3), b.in(4), b.in(5)}, b.sequence(6)));
    }
    fail("this attention has no verb ", b.verb());
  }
};
inline Value attend(Builder& b, const Slot& s, Value x, const Sequence& seq) { return b.call(s, 0, with({x}, seq))[0]; }

}  // namespace kb
