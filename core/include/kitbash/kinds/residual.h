// residual: drives the depth. The core calls, for sub-layers i = 0 .. count-1 (attention and ffn in turn):
//   begin  (0)  embedding [tokens, dim]                            -> carry...
//   input  (1)  carry...       attributes index, count, role       -> h, carry...     h: what sub-layer i reads
//   output (2)  carry..., y    attributes as input                 -> carry...
//   end    (3)  carry...       attribute count                     -> h [tokens, dim]
// role is "attn" or "ffn". The carry is any number of values; it is the whole memory between calls (a component has none), so
// a pipeline cut sends exactly the carry, and recompute keeps exactly the carry. Parameters are named in the scope of the
// layer (input, output) or of the model (begin, end).
#pragma once
#include "kitbash/builder.h"

namespace kb {

struct Depth {
  int64_t index, count;
  std::string role;
};
struct Entered {
  Value h;
  Values carry;
};
// T: Values begin(b, e); Entered input(b, carry, Depth); Values output(b, carry, y, Depth); Value end(b, carry, count)
template <class T>
struct Residual {
  static constexpr const char* kind = "residual";
  static void serve(const T& t, Builder& b) {
    auto depth = [&] { return Depth{b.integer("index"), b.integer("count"), b.string("role")}; };
    Values v = b.inputs();
    if (v.empty()) fail("residual verb ", b.verb(), " needs an input");
    switch (b.verb()) {
      case 0:
        return b.result(t.begin(b, v[0]));
      case 1: {
        Entered e = t.input(b, v, depth());
        e.carry.insert(e.carry.begin(), e.h);
        return b.result(e.carry);
      }
      case 2: {
        const Value y = v.back();
        v.pop_back();
        return b.result(t.output(b, v, y, depth()));
      }
      case 3:
        return b.result({t.end(b, v, b.integer("count"))});
      default:
        fail("residual has no verb ", b.verb());
    }
  }
};

}  // namespace kb
