// norm: x [.., dim] -> same. position: q or k [tokens, heads, d], position [tokens] -> same.
#pragma once
#include "kitbash/builder.h"

namespace kb {

template <class T>
struct Norm {  // T: Value build(Builder&, Value x) const
  static constexpr const char* kind = "norm";
  static void serve(const T& t, Builder& b) { b.result({t.build(b, b.required(0, "x"))}); }
};
template <class T>
struct Position {  // T: Value build(Builder&, Value x, Value position) const
  static constexpr const char* kind = "position";
  static void serve(const T& t, Builder& b) { b.result({t.build(b, b.required(0, "x"), b.required(1, "position"))}); }
};

}  // namespace kb
