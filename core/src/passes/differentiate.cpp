#include "kitbash/op.h"
#include "passes/passes.h"

namespace kitbash {

namespace {

// Values through which the loss may depend on a wanted one.
std::vector<char> reachable(const Graph& g, const std::vector<ValueId>& want) {
  const OpDef* const detach = g.registry.op("detach");
  std::vector<char> need(g.values.size(), 0);
  for (ValueId v : want) need[v] = 1;
  for (const Node& n : g.nodes) {
    if (n.kind != NodeKind::op || n.op == detach) continue;
    bool any = false;
    for (ValueId v : n.in) any |= need[v] != 0;
    if (!any) continue;
    for (ValueId v : n.out) need[v] |= g.type(v).dtype >= KB_BF16;  // integers carry no gradient
  }
  return need;
}

}  // namespace

std::map<ValueId, ValueId> differentiate(Graph& g, ValueId loss, const std::vector<ValueId>& want,
                                         const GradientReady& ready) {
  if (kb::elements(g.type(loss)) != 1) kb::fail("the loss must be a scalar but got ", type_text(g.type(loss)));
  const auto last = int64_t(g.nodes.size());
  const std::vector<char> need = reachable(g, want);
  const OpDef* const detach = g.registry.op("detach");
  kb::Builder b = g.builder();
  std::vector<ValueId> gradient(g.values.size(), 0);
  {
    Graph::Scope scope(g, "loss", Phase::backward);
    gradient[loss] = b.fill(kb::shape_of(g.type(loss)), 1.0, kb_dtype(g.type(loss).dtype)).id;
  }
  std::vector<char> wanted_value(g.values.size(), 0);
  for (ValueId v : want) wanted_value[v] = 1;
  for (int64_t i = last - 1; i >= 0; --i) {
    // A value without a maker op is read first by the node after it, whose rule has just run.
    if (const Node& r = g.nodes[size_t(i)];
        ready && r.kind != NodeKind::op && wanted_value[r.out[0]] && gradient[r.out[0]]) {
      ready(r.out[0], gradient[r.out[0]]);
      continue;
    }
    const Node n = g.nodes[size_t(i)];  // a copy: rules append nodes
    if (n.kind != NodeKind::op || n.op == detach) continue;
    std::vector<ValueId> up, down(n.in.size() + 1, 0);
    std::vector<uint8_t> wanted;
    bool flows = false, asked = false;
    for (ValueId v : n.out) up.push_back(gradient[v]), flows |= up.back() != 0;
    for (ValueId v : n.in) wanted.push_back(v && need[v]), asked |= wanted.back() != 0;
    if (!flows || !asked) continue;
    const std::string& where = g.where_text(n);
    Graph::Scope scope(g, where, Phase::backward);
    if (!n.op->table->gradient)
      kb::fail("[", where, "] op ", n.op->name, " has no gradient; detach its input or use another op");
    kb_node c{KB_STRUCT_SIZE(kb_node, down), n.attr,    n.n_attr,      n.in.data(), uint32_t(n.in.size()), n.out.data(),
              uint32_t(n.out.size()),        up.data(), wanted.data(), down.data()};
    kb_error e{};
    if (int rc = n.op->table->gradient(&host_table(), reinterpret_cast<kb_builder*>(&g), &c, &e))
      throw kb::Error(e.message[0] == '[' ? e.message : "[" + where + "] backward of " + n.op->name + ": " + e.message,
                      uint32_t(rc));
    for (size_t k = 0; k < n.in.size(); ++k) {
      const ValueId v = n.in[k];
      if (!wanted[k] || !down[k]) continue;
      if (!same_shape(g.type(down[k]), g.type(v)))
        kb::fail("[", where, "] backward of ", n.op->name, " gives ", type_text(g.type(down[k])), " for input ", k,
                 ", which is ", type_text(g.type(v)));
      const kb::Value d = b.cast({&b, down[k]}, kb_dtype(g.type(v).dtype));
      gradient[v] = gradient[v] ? (kb::Value{&b, gradient[v]} + d).id : d.id;
    }
  }
  std::map<ValueId, ValueId> out;
  for (ValueId v : want)
    if (gradient[v]) out[v] = gradient[v];
  return out;
}

}  // namespace kitbash
