// router: chooses experts.
//   verb 0, route:  x [tokens, dim], document [tokens] -> ids [tokens, active] i32 (distinct), weights [tokens, active] wide
//   verb 1, choose: scores [tokens, experts] wide, document -> ids, weights. The same without the projection; optional.
//   Attributes from the caller: experts, active. Rows of document -1 must not enter any statistic. Ties go to the lower id.
//   Gradients flow through weights only.
//   update(b)  after the optimiser step, with the same attributes: STEP statistics -> next bias; summed over ranks with
//              all_reduce(.., "tokens"). Nothing is counted unless b.training().
//   A balancing loss is b.loss(name, value), a sum over tokens.
#pragma once
#include "kitbash/builder.h"

namespace kb {

struct Routed {
  Value ids, weights;
};
// T: Routed route(b, x, document, experts, active) const; optional Routed choose(b, scores, document, ...)
template <class T>
struct Router {
  static constexpr const char* kind = "router";
  static void serve(const T& t, Builder& b) {
    const int64_t experts = b.integer("experts"), active = b.integer("active");
    Routed r;
    if (b.verb() == 0)
      r = t.route(b, b.required(0, "x"), b.required(1, "document"), experts, active);
    else if constexpr (requires { t.choose(b, Value{}, Value{}, experts, active); })
      r = t.choose(b, b.required(0, "scores"), b.required(1, "document"), experts, active);
    else
      fail("this router has no verb ", b.verb());
    b.result({r.ids, r.weights});
  }
};
inline Routed route(Builder& b, const Slot& s, Value x, Value document, int64_t experts, int64_t active) {
  const Values v = b.call(s, 0, {x, document}, {{"experts", experts}, {"active", active}});
  return {v[0], v[1]};
}

}  // namespace kb
