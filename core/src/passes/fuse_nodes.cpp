// The nodes of groups: steps, operands, results and the axes of the index; and the order with them.
#include "passes/fuser.h"

namespace kitbash {

namespace {

bool same(const Operand& a, const Operand& b, const Chain& chain) {
  for (size_t j = 0; j + 1 < chain.size(); ++j)
    if (a.step(chain[j]) != b.step(chain[j])) return false;
  return true;
}
// Neighbouring parts of the index in which every operand runs on are one axis.
void lay_out(kb::FusedProgram& p, const std::vector<Operand>& operands, const Chain& chain, int64_t width) {
  std::vector<int64_t> from, size;  // of the axes, from the last on
  for (size_t j = 0; j + 1 < chain.size(); ++j) {
    const int64_t n = chain[j + 1] / chain[j];
    bool runs_on = !from.empty() && chain[j] != width;  // a row is an axis of its own
    for (const Operand& o : operands) runs_on = runs_on && o.step(chain[j]) == o.step(from.back()) * size.back();
    if (runs_on)
      size.back() *= n;
    else
      from.push_back(chain[j]), size.push_back(n);
  }
  if (from.empty()) from.push_back(1), size.push_back(1);
  if (width && from.size() == 1) from.push_back(chain.back()), size.push_back(1);  // a single row
  p.inner.assign(size.rbegin() + 1, size.rend());
  for (const Operand& o : operands) {
    p.stride.emplace_back();
    for (size_t a = from.size(); a-- > 0;) p.stride.back().push_back(chain.size() > 1 ? o.step(from[a]) : 0);
  }
}

}  // namespace

// A node in the making. Operands of steps are numbered when all inputs are known: until then steps are -1 - number.
struct Fuser::Draft {
  kb::FusedProgram program;
  std::vector<ValueId> in, out;
  std::vector<Operand> operands;
  std::map<ValueId, int> step_of;
  std::set<ValueId> of_rows;  // values that are one a row
  std::map<double, int> constants;

  int input(const Operand& o, const Chain& chain) {
    for (size_t i = 0; i < in.size(); ++i)
      if (in[i] == o.value && same(operands[i], o, chain)) return int(i);
    in.push_back(o.value), operands.push_back(o);
    return int(in.size() - 1);
  }
  int constant(double v) {
    auto [c, fresh] = constants.emplace(v, int(program.steps.size()));
    if (fresh) {
      kb::FusedStep f;
      f.op = kb::fused_step("fill"), f.dtype = KB_F32, f.add = v;
      program.steps.push_back(f);
    }
    return -1 - c->second;
  }
  void number_steps() {
    const int first = int(in.size());
    for (kb::FusedStep& s : program.steps) {
      const int n = kb::fused_operands(s.op);
      if (n > 0 && s.a < 0) s.a = first - 1 - s.a;
      if (n > 1 && s.b < 0) s.b = first - 1 - s.b;
      if (n < 1) s.a = -1;
      if (n < 2) s.b = -1;
    }
  }
};

void Fuser::write_steps(const Group& gr, Draft& d) const {
  std::vector<NodeId> nodes = gr.again;
  for (int32_t p : gr.members) nodes.push_back(order_[size_t(p)]);
  for (NodeId id : nodes) {
    const Node& n = g_.nodes[id];
    const Kind kind = kind_in(gr, n);
    kb::FusedStep s;
    s.op = kb::fused_step(kind == Kind::sum ? "sum_row" : n.op->name.c_str()), s.dtype = g_.type(n.out[0]).dtype;
    if (n.is("affine")) s.mul = number(n, "mul"), s.add = number(n, "add");
    int* const to[] = {&s.a, &s.b};
    for (size_t k = 0; k < n.in.size(); ++k) {
      const Operand o = operand_in(gr, n, n.in[k], kind);
      const auto made = d.step_of.find(o.value);
      if (!o.value)
        *to[k] = d.constant(o.constant);
      else if (made != d.step_of.end() && (o.full || d.of_rows.count(o.value)))
        *to[k] = -1 - made->second;
      else
        *to[k] = d.input(o, gr.chain);
    }
    if (kind == Kind::sum || kind == Kind::row) d.of_rows.insert(n.out[0]);
    d.step_of[n.out[0]] = int(d.program.steps.size());
    d.program.steps.push_back(s);
  }
  d.number_steps();
}

bool Fuser::make(const Group& gr, Made& made) {
  if (gr.members.size() + gr.again.size() < 2) return false;
  const std::set<NodeId> inside = inside_of(gr);
  Draft d;
  write_steps(gr, d);
  for (int32_t p : gr.members) {
    const ValueId v = node(p).out[0];
    if (!read_by_others(v, v, inside)) continue;
    d.out.push_back(v);
    d.program.out.push_back(int(d.in.size()) + d.step_of[v]);
    d.program.row_out.push_back(d.of_rows.count(v) != 0);
  }
  if (d.out.empty()) return false;
  for (int32_t p : gr.views) {
    const ValueId v = node(p).out[0];
    if (read_by_others(v, root_[v], inside)) made.views.push_back(order_[size_t(p)]);
  }
  d.program.elements = gr.elements;
  lay_out(d.program, d.operands, gr.chain, gr.width);
  made.id = append(gr, d);
  return true;
}

NodeId Fuser::append(const Group& gr, const Draft& d) {
  const Node& last = node(gr.members.back());
  Node f;
  f.phase = last.phase, f.where = last.where, f.segment = last.segment;
  f.op = g_.registry.op("fused");
  const std::vector<double> flat = d.program.flat();
  const kb_attr attr{"program", KB_FLOATS, uint32_t(flat.size()), {.fs = flat.data()}};
  f.attr = g_.keep_attrs(&attr, 1);
  f.n_attr = 1;
  for (ValueId v : d.in) f.in.push_back(v);
  for (ValueId v : d.out) f.out.push_back(v);
  const auto id = NodeId(g_.nodes.size());
  for (size_t o = 0; o < d.out.size(); ++o) g_.values[d.out[o]].maker = id, g_.values[d.out[o]].index = uint32_t(o);
  g_.nodes.push_back(std::move(f));
  return id;
}

std::vector<NodeId> Fuser::new_order() {
  std::vector<char> gone(order_.size(), 0);
  std::map<int32_t, Made> at;
  std::map<int32_t, std::vector<NodeId>> moved;  // behind a position
  for (const Group& gr : groups_) {
    Made made{};
    if (gr.merged_into >= 0 || !make(gr, made)) continue;
    for (const auto* list : {&gr.members, &gr.views})
      for (int32_t p : *list) gone[size_t(p)] = 1;
    at.emplace(gr.members.back(), std::move(made));
    for (int32_t p : gr.late)
      if (p < gr.members.back()) gone[size_t(p)] = 1, moved[gr.members.back()].push_back(order_[size_t(p)]);
  }
  std::vector<NodeId> now;
  for (int32_t p = 0; p < int32_t(order_.size()); ++p) {
    if (!gone[size_t(p)]) now.push_back(order_[size_t(p)]);
    if (auto m = at.find(p); m != at.end()) {
      now.push_back(m->second.id);
      now.insert(now.end(), m->second.views.begin(), m->second.views.end());
    }
    if (auto m = moved.find(p); m != moved.end()) now.insert(now.end(), m->second.begin(), m->second.end());
  }
  return without_unread(now);
}
// What only groups would read, and they compute for themselves.
std::vector<NodeId> Fuser::without_unread(const std::vector<NodeId>& order) const {
  std::vector<char> read(g_.values.size(), 0);
  for (const auto* list : {&g_.outputs, &g_.reports})
    for (const auto& [name, v] : *list) read[v] = 1;
  for (const Write& w : g_.writes) read[w.value] = 1;
  std::vector<NodeId> kept;
  for (size_t k = order.size(); k-- > 0;) {
    const Node& n = g_.nodes[order[k]];
    bool needed = n.kind != NodeKind::op;
    for (ValueId v : n.out) needed |= read[v] != 0;
    if (!needed && (n.is("fill") || n.is("broadcast") || (n.traits() & KB_VIEW) || eligible(n))) continue;
    for (const auto* list : {&n.in, &n.base})
      for (ValueId v : *list) read[v] = 1;
    kept.push_back(order[k]);
  }
  std::reverse(kept.begin(), kept.end());
  return kept;
}

}  // namespace kitbash
