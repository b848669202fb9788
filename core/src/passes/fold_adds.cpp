// add(a, b) costs a pass over three tensors; a product that adds to a as it is written costs none. Folded are the sums of
// gradients that meet at one value, and the addition to the gradient accumulators of the store. These are wide: a narrow
// product is made wide by its kernel, which also keeps the bits that a narrow result would lose.
#include "passes/passes.h"
#include "passes/widens.h"

#include <algorithm>

namespace kitbash {

int64_t fold_adds(Graph& g, const Accumulates& accumulates) {
  std::vector<int32_t> uses(g.values.size(), 0);
  for (const Node& n : g.nodes)
    for (ValueId v : n.in) ++uses[v];
  for (const auto& [name, v] : g.outputs) ++uses[v];
  for (const auto& [name, v] : g.reports) ++uses[v];
  for (const Write& w : g.writes) ++uses[w.value];
  std::vector<ValueId> now(g.values.size());
  for (ValueId v = 0; v < now.size(); ++v) now[v] = v;
  int64_t folded = 0;
  const OpDef *const add = g.registry.op("add"), *const cast = g.registry.op("cast");
  for (NodeId id = 0; id < g.nodes.size(); ++id) {
    Node& n = g.nodes[id];
    for (ValueId& v : n.in) v = now[v];
    if (n.op != add) continue;
    const ValueId sum = n.out[0];
    for (int side = 1; side >= 0; --side) {
      const ValueId added = n.in[size_t(side)], a = n.in[size_t(1 - side)];
      Node& widening = g.nodes[g.values[added].maker];
      const bool wide =
          widening.op == cast && uses[added] == 1 && widens(g.type(widening.in[0]).dtype, g.type(added).dtype);
      const ValueId b = wide ? widening.in[0] : added;
      const ValueInfo &vb = g.values[b], &va = g.values[a];
      Node& m = g.nodes[vb.maker];
      // Reads and feeds exist before anything runs; another base must have been made before m in program order, and neither
      // may be a clone, whose place is not its number.
      const bool before =
          g.nodes[va.maker].kind == NodeKind::read ||
          (va.maker < vb.maker && n.phase != Phase::recompute && g.nodes[va.maker].kind == NodeKind::op);
      if (a == b || uses[a] != 1 || uses[b] != 1 || !before || m.kind != NodeKind::op || m.phase == Phase::recompute ||
          g.nodes[va.maker].phase == Phase::recompute || !same_shape(va.type, vb.type) ||
          va.type.dtype != g.type(added).dtype || !same_shape(va.type, g.type(sum)) ||
          va.type.extent != g.type(sum).extent)
        continue;
      if ((!m.base.empty() && m.base[vb.index]) || (!m.alias.empty() && m.alias[vb.index] >= 0)) continue;
      if (g.nodes[va.maker].phase == Phase::forward && g.nodes[va.maker].kind == NodeKind::op &&
          m.phase != Phase::forward)
        continue;
      const kb_type narrow = vb.type;
      m.base.resize(m.out.size(), 0);
      m.base[vb.index] = a;
      g.values[b].type.dtype = va.type.dtype;
      if (!accumulates(m, vb.index)) {
        m.base[vb.index] = 0;
        if (std::all_of(m.base.begin(), m.base.end(), [](ValueId v) { return !v; })) m.base.clear();
        g.values[b].type = narrow;
        continue;
      }
      g.values[b].type.extent = g.type(sum).extent;
      if (wide) widening.in.clear();  // dead, as the add
      now[sum] = b;
      uses[b] = uses[sum];
      n.in.clear();  // dead: nobody reads it any more
      ++folded;
      break;
    }
  }
  for (Node& n : g.nodes) {
    for (ValueId& v : n.in) v = now[v];
    for (ValueId& v : n.base) v = now[v];
  }
  for (auto& [name, v] : g.outputs) v = now[v];
  for (auto& [name, v] : g.reports) v = now[v];
  for (Write& w : g.writes) w.value = now[w.value];
  return folded;
}

}  // namespace kitbash
