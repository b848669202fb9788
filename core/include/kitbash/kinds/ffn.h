// ffn: x [tokens, dim] (normalised), document [tokens] -> y [tokens, dim]. No look along tokens.
#pragma once
#include "kitbash/builder.h"

namespace kb {

template <class T>
struct Ffn {  // T: Value build(Builder&, Value x, Value document) const
  static constexpr const char* kind = "ffn";
  static void serve(const T& t, Builder& b) { b.result({t.build(b, b.required(0, "x"), b.required(1, "document"))}); }
};

}  // namespace kb
