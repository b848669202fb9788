// objective: what is learnt from a micro-batch.
//   verb 0: h [tokens, dim] (after the final norm), head [vocab, dim], then one input for every column the service declares
//           -> loss [] wide, a *sum* over counted tokens (the trainer divides once by the global count of them)
// Service: the per-token tensors that the batch must hold. `loss_weight` (wide) always exists: the weight of a token in the
// loss; 0 = shown, not learnt; rows past the extent are 0. The count of a micro-batch is the sum of loss_weight.
#pragma once
#include "kitbash/builder.h"

namespace kb {

// T: static constexpr kb_column columns[]; Value build(Builder&, Value h, Value head, const Values&) const
template <class T>
struct Objective {
  static constexpr const char* kind = "objective";
  static void serve(const T& t, Builder& b) {
    b.result({t.build(b, b.required(0, "h"), b.required(1, "head"), b.inputs(2))});
  }
  static const void* service() {
    static const kb_objective s{KB_STRUCT_SIZE(kb_objective, columns),
                                [](const void*, uint32_t* n) -> const kb_column* {
                                  *n = uint32_t(std::size(T::columns));
                                  return T::columns;
                                }};
    return &s;
  }
};

}  // namespace kb
