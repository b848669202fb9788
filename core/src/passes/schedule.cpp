#include "passes/passes.h"

namespace kitbash {

namespace {

struct Scheduler {
  const Graph& g;
  std::vector<char> live, placed;
  std::vector<NodeId> order;

  explicit Scheduler(const Graph& graph) : g(graph), live(graph.nodes.size(), 0), placed(graph.nodes.size(), 0) {
    std::vector<ValueId> open;
    for (const auto& [name, v] : g.outputs) open.push_back(v);
    for (const auto& [name, v] : g.reports) open.push_back(v);
    for (const Write& w : g.writes) open.push_back(w.value);
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      if (!v || live[g.values[v].maker]) continue;
      const Node& n = g.maker(v);
      live[g.values[v].maker] = 1;
      for (ValueId i : n.in) open.push_back(i);
      for (ValueId i : n.base) open.push_back(i);
    }
  }

  // Places the node after the clones that it reads; with `all`, after everything it reads.
  void place(NodeId id, bool all) {
    if (placed[id]) return;
    placed[id] = 1;
    const Node& n = g.nodes[id];
    for (const auto* list : {&n.in, &n.base})
      for (ValueId v : *list) {
        if (!v) continue;
        const NodeId m = g.values[v].maker;
        if (all || g.nodes[m].phase == Phase::recompute) place(m, all);
      }
    order.push_back(id);
  }
};

}  // namespace

std::vector<NodeId> schedule(const Graph& g, ValueId first) {
  Scheduler s(g);
  if (first) s.place(g.values[first].maker, true);
  for (NodeId id = 0; id < g.nodes.size(); ++id)
    if (s.live[id] && g.nodes[id].phase != Phase::recompute) s.place(id, false);
  return s.order;
}

}  // namespace kitbash
