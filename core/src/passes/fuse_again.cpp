// An operand that is a pointwise function of other operands is computed again instead of read, where that moves fewer bytes: a
// gradient need not read, and often nobody write, what its gated unit computed on the way.
#include "passes/fuser.h"

namespace kitbash {

// What the group must then have: nodes in the order of need, further operands, and the parts of the index.
struct Fuser::Again {
  std::vector<NodeId> nodes;
  std::set<ValueId> small, leaves;
  Chain chain;
};

// Others read it from memory, so that nobody writes it for this group.
bool Fuser::in_memory(ValueId v) const {
  const int32_t i = final_group(v);
  return i < 0 || read_by_others(v, v, inside_of(groups_[size_t(i)]));
}

double Fuser::bytes(const std::set<ValueId>& values) const {
  double n = 0;
  for (ValueId v : values) n += double(type_bytes(g_.type(v)));
  return n;
}
bool Fuser::expression(const Group& gr, ValueId v, Again& a, int depth) const {
  const NodeId id = g_.values[v].maker;
  const Node& n = g_.nodes[id];
  const kb_type& out = g_.type(v);
  if (depth > 6 || !eligible(n) || gr.elements != kb::elements(out) || gr.extent != out.extent ||
      (out.extent && gr.rows != out.shape[0]))
    return false;
  if (std::count(a.nodes.begin(), a.nodes.end(), id) || std::count(gr.again.begin(), gr.again.end(), id)) return true;
  for (ValueId in : n.in) {
    const Operand o = operand(in, out);
    if (!o.value || gr.not_read.count(o.value)) continue;
    if (o.full) {
      if ((o.value != v && gr.inputs.count(o.value)) || a.leaves.count(o.value)) continue;
      Again deeper = a;
      if (expression(gr, o.value, deeper, depth + 1) &&
          bytes(deeper.leaves) - bytes(a.leaves) <= double(type_bytes(g_.type(o.value))))
        a = deeper;
      else if (!in_memory(o.value))
        return false;
      else
        a.leaves.insert(o.value);
      continue;
    }
    if (kb::elements(g_.type(o.value)) * 16 > gr.elements) return false;
    Chain c{1};
    for (const auto& axis : o.axes) c.push_back(axis.to);
    if (!join_chains(a.chain, c)) return false;
    a.small.insert(o.value);
  }
  a.nodes.push_back(id);
  return true;
}
void Fuser::compute_again(Group& gr) {
  if (gr.members.empty()) return;
  const std::set<NodeId> inside = inside_of(gr);
  const NodeId reader = order_[size_t(gr.members.back())];
  // The latest first: what it needs may then be computed again too.
  const std::vector<ValueId> candidates(gr.inputs.rbegin(), gr.inputs.rend());
  for (ValueId v : candidates) {
    if (kb::elements(g_.type(v)) != gr.elements) continue;
    Again a;
    a.chain = gr.chain;
    if (!expression(gr, v, a, 0) || a.leaves.count(v)) continue;
    if (gr.members.size() + gr.again.size() + a.nodes.size() > most_steps ||
        gr.inputs.size() + a.small.size() + a.leaves.size() > most_inputs)
      continue;
    // Worth it when less is read and written.
    const bool last_reader = !read_by_others(v, v, inside);
    const double saved = double(type_bytes(g_.type(v))) * (last_reader ? 2 : 1);
    if (bytes(a.leaves) >= saved) continue;
    gr.again.insert(gr.again.end(), a.nodes.begin(), a.nodes.end());
    for (NodeId id : a.nodes) gr.not_read.insert(g_.nodes[id].out[0]);
    gr.chain = a.chain;
    gr.inputs.erase(v);
    for (const auto* more : {&a.small, &a.leaves})
      for (ValueId x : *more)
        if (gr.inputs.insert(x).second) uses_[x].push_back(reader);
  }
  std::sort(gr.again.begin(), gr.again.end(),
            [&](NodeId x, NodeId y) { return position_of_.at(x) < position_of_.at(y); });
}

}  // namespace kitbash
