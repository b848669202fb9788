// A product in a wide type of a value that was widened for it, as a router's: where the device multiplies the narrow value as it
// is, the cast, its pass over memory and the wide copy go.
#include "passes/passes.h"
#include "passes/widens.h"

namespace kitbash {

int64_t fold_casts(Graph& g, const std::function<const void*(const Node&)>& kernel) {
  const OpDef *const cast = g.registry.op("cast"), *const matmul = g.registry.op("matmul");
  int64_t folded = 0;
  for (Node& n : g.nodes) {
    if (n.op != matmul || n.in.empty()) continue;
    for (ValueId& v : n.in) {
      const Node& maker = g.nodes[g.values[v].maker];
      if (maker.op != cast || maker.in.empty() || !widens(g.type(maker.in[0]).dtype, g.type(v).dtype)) continue;
      const ValueId wide = v;
      const void* before = kernel(n);
      v = maker.in[0];
      // One that takes both may not have looked at the types, which no other pass mixes.
      if (const void* now = kernel(n); now && now != before)
        ++folded;
      else
        v = wide;
    }
  }
  return folded;
}

}  // namespace kitbash
