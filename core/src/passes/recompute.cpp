// Recompute: a backward node that needs a value from inside a segment gets a clone of the node that made it. Clones read the
// segment's inputs, which stay, so a segment costs memory only while its own backward runs. State writes bind forward values,
// so nothing is counted twice.
#include "passes/passes.h"

namespace kitbash {

namespace {

// Costs about as much as reading its result again.
bool cheap(const Node& n) {
  if (n.traits() & (KB_POINTWISE | KB_VIEW | KB_SOURCE)) return true;
  for (const char* op : {"broadcast", "sum", "sum_to", "rms_norm", "short_conv", "dispatch", "slice", "unslice",
                         "concat", "permute", "take", "untake", "gather"})
    if (n.is(op)) return n.alias.empty();
  return false;
}

struct Cloner {
  Graph& g;
  Recompute how;
  std::vector<char> crosses;  // by value: used by a forward node of another segment
  std::vector<NodeId> clone;  // by forward node
  int64_t count = 0;

  Cloner(Graph& graph, Recompute r)
      : g(graph), how(r), crosses(graph.values.size(), 0), clone(graph.nodes.size(), no_node) {
    for (const Node& n : g.nodes) {
      if (n.kind != NodeKind::op || n.phase != Phase::forward) continue;
      for (ValueId v : n.in)
        if (v && n.segment != g.maker(v).segment) crosses[v] = 1;
    }
    for (const auto& [name, v] : g.outputs) crosses[v] = 1;
    for (const Write& w : g.writes) crosses[w.value] = 1;
  }

  bool kept(ValueId v) const {
    const Node& n = g.maker(v);
    return n.kind != NodeKind::op || n.phase != Phase::forward || n.segment < 0 || crosses[v] ||
           g.type(v).dtype < KB_BF16 || (n.traits() & KB_COLLECTIVE) || (how == Recompute::light && !cheap(n));
  }

  ValueId again(ValueId v) {
    if (!v || kept(v)) return v;
    const NodeId id = g.values[v].maker;
    const uint32_t index = g.values[v].index;
    if (clone[id] == no_node) {
      Node c = g.nodes[id];
      c.phase = Phase::recompute;
      c.clone_of = id;
      for (ValueId& in : c.in) in = again(in);
      std::vector<kb_type> types;
      for (ValueId o : c.out) types.push_back(g.type(o));
      clone[id] = g.append(std::move(c), types);
      ++count;
    }
    return g.nodes[clone[id]].out[index];
  }
};

}  // namespace

int64_t recompute_segments(Graph& g, Recompute how) {
  if (how == Recompute::none) return 0;
  Cloner c(g, how);
  const size_t n = g.nodes.size();
  for (size_t i = 0; i < n; ++i) {
    if (g.nodes[i].phase != Phase::backward) continue;
    for (size_t k = 0; k < g.nodes[i].in.size(); ++k) {
      const ValueId v = c.again(g.nodes[i].in[k]);  // may move the nodes
      g.nodes[i].in[k] = v;
    }
  }
  return c.count;
}

}  // namespace kitbash
