// Fusion. Walks the order with a few open groups. A pointwise node joins the group that makes or shares an operand of it, if
// both go over the same elements. A group runs where its last member stood. A few nodes that read its values may stand before
// that: they are moved behind it. Otherwise it closes, and takes no more members, when a node that is no member reads one of
// its values or of theirs, or changes an operand in place. Reshapes are looked through; filled and broadcast operands are not
// kept in memory. Sums over the last axis join too, and what is computed from them row by row, so that a norm, or the gradient
// of a weight a row, is one pass over memory.
#include <cmath>
#include <cstring>

#include "passes/fuser.h"

namespace kitbash {

namespace {

constexpr size_t most_late = 6, most_open = 16;

bool narrow_or_f32(uint32_t dtype) { return dtype == KB_F32 || dtype == KB_BF16; }
double rounded(double v, uint32_t dtype) {  // what memory would hold
  const float f = float(v);
  if (dtype != KB_BF16 || !std::isfinite(f)) return double(f);
  uint32_t u;
  std::memcpy(&u, &f, 4);
  u = (u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u;
  float r;
  std::memcpy(&r, &u, 4);
  return double(r);
}

// No part of the index may end inside a row that is summed over.
bool whole_rows(const Chain& chain, int64_t width) {
  for (int64_t c : chain)
    if (width && c > 1 && c < width) return false;
  return true;
}

}  // namespace

double number(const Node& n, const char* name) {
  for (uint32_t i = 0; i < n.n_attr; ++i)
    if (!std::strcmp(n.attr[i].name, name)) return n.attr[i].kind == KB_INT ? double(n.attr[i].v.i) : n.attr[i].v.f;
  return 0;
}
bool join_chains(Chain& a, const Chain& b) {
  Chain all = a;
  all.insert(all.end(), b.begin(), b.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  for (size_t i = 0; i + 1 < all.size(); ++i)
    if (!all[i] || all[i + 1] % all[i]) return false;
  a = all;
  return true;
}

int64_t sums_row(const Graph& g, const Node& n) {
  if (n.kind != NodeKind::op || !(n.is("sum") || n.is("sum_to")) || !n.base.empty() || n.in.size() != 1) return 0;
  const kb_type &x = g.type(n.in[0]), &y = g.type(n.out[0]);
  if (x.rank < 2 || !narrow_or_f32(x.dtype) || !narrow_or_f32(y.dtype) || !kb::elements(x) ||
      x.shape[0] != y.shape[0] || x.extent != y.extent)
    return 0;
  const int64_t width = x.shape[x.rank - 1], rows = kb::elements(x) / width;
  if (width < 2 || width > 4096 || rows < 2 || (rows < 4096 && kb::elements(x) > 1 << 18) || rows != kb::elements(y))
    return 0;
  if (n.is("sum")) {
    const auto axis = int64_t(number(n, "axis"));
    return axis == -1 || axis == x.rank - 1 ? width : 0;
  }
  return x.rank == y.rank && y.shape[y.rank - 1] == 1 ? width : 0;
}

Fuser::Fuser(Graph& graph, const std::vector<NodeId>& order, ValueId barrier)
    : g_(graph),
      order_(order),
      group_of_(graph.values.size(), -1),
      late_of_(graph.values.size(), -1),
      barrier_(barrier ? graph.values[barrier].maker : no_node) {
  uses_.resize(g_.values.size());
  for (NodeId id : order_)
    for (const auto* list : {&g_.nodes[id].in, &g_.nodes[id].base})
      for (ValueId v : *list)
        if (v) uses_[v].push_back(id);
  for (const auto* list : {&g_.outputs, &g_.reports})
    for (const auto& [name, v] : *list) uses_[v].push_back(no_node);
  for (const Write& w : g_.writes) uses_[w.value].push_back(no_node);
  root_.resize(g_.values.size());
  for (ValueId v = 0; v < root_.size(); ++v) root_[v] = v;
  for (int32_t p = 0; p < int32_t(order_.size()); ++p) {
    const Node& n = node(p);
    position_of_[order_[size_t(p)]] = p;
    if (n.traits() & KB_VIEW) root_[n.out[0]] = root_[n.in[0]];
  }
}

std::vector<NodeId> Fuser::run() {
  for (int32_t p = 0; p < int32_t(order_.size()); ++p) {
    visit(p);
    if (order_[size_t(p)] == barrier_) close_all();
  }
  close_all();
  dissolve_wide();
  for (Group& gr : groups_)
    if (gr.merged_into < 0) compute_again(gr);
  return new_order();
}

bool Fuser::eligible(const Node& n) const {
  if (n.kind != NodeKind::op || !(n.traits() & KB_POINTWISE) || !n.alias.empty() || !n.base.empty() ||
      n.out.size() != 1)
    return false;
  const int step = kb::fused_step(n.op->name);
  if (step < 0 || int(n.in.size()) != kb::fused_operands(step) || !narrow_or_f32(g_.type(n.out[0]).dtype) ||
      !kb::elements(g_.type(n.out[0])))
    return false;
  for (ValueId v : n.in)
    if (!v || !(narrow_or_f32(g_.type(v).dtype) || (n.is("cast") && g_.type(v).dtype == KB_I32))) return false;
  return true;
}

// Operand v of a node whose result is like `out`.
Operand Fuser::operand(ValueId v, const kb_type& out) const {
  Operand o;
  const kb_type& t = g_.type(v);
  if (kb::elements(t) == kb::elements(out)) {
    const ValueId r = root(v);
    const Node& m = g_.maker(r);
    if (m.is("fill") && narrow_or_f32(t.dtype)) {
      o.constant = rounded(number(m, "value"), t.dtype);
    } else if (m.is("broadcast") && kb::elements(g_.type(m.in[0])) < kb::elements(t) && group(m.in[0]) < 0) {
      return operand(m.in[0], g_.type(r));
    } else {
      o.value = r, o.full = true;
    }
    return o;
  }
  if (g_.maker(root(v)).is("fill") && narrow_or_f32(t.dtype)) {
    o.constant = rounded(number(g_.maker(root(v)), "value"), t.dtype);
    return o;
  }
  o.value = v;
  int64_t from = 1, step = 1;
  for (int d = 0; d < out.rank; ++d) {  // from the last axis on
    const int64_t n = out.shape[out.rank - 1 - d], m = d < t.rank ? t.shape[t.rank - 1 - d] : 1;
    if (n > 1) o.axes.push_back({from, from * n, m > 1 ? step : 0});
    from *= n, step *= m;
  }
  return o;
}

Fuser::Kind Fuser::kind_in(const Group& gr, const Node& n) const {
  const kb_type& out = g_.type(n.out[0]);
  if (gr.extent != out.extent || (out.extent && gr.rows != out.shape[0])) return Kind::none;
  if (const int64_t w = sums_row(g_, n))
    return kb::elements(g_.type(n.in[0])) == gr.elements && (!gr.width || gr.width == w) ? Kind::sum : Kind::none;
  if (!eligible(n)) return Kind::none;
  if (kb::elements(out) == gr.elements) return Kind::element;
  return gr.width && kb::elements(out) * gr.width == gr.elements ? Kind::row : Kind::none;
}
Operand Fuser::operand_in(const Group& gr, const Node& n, ValueId v, Kind kind) const {
  const Operand o = operand(v, g_.type(kind == Kind::sum ? n.in[0] : n.out[0]));
  return kind == Kind::row ? o.by_row(gr.width) : o;
}
bool Fuser::refers(int32_t i, const Operand& o) const {
  if (!o.value) return true;
  const Group& gr = groups_[size_t(i)];
  const int64_t n = kb::elements(g_.type(o.value));
  if (n == gr.elements) return o.full;
  if (!gr.width || n * gr.width != gr.elements) return false;
  for (const auto& a : o.axes)
    if (a.from < gr.width ? a.step != 0 : o.step(a.from) != a.from / gr.width) return false;
  return true;
}
bool Fuser::join(int32_t i, int32_t p) {
  Group& gr = groups_[size_t(i)];
  const Node& n = node(p);
  const Kind kind = kind_in(gr, n);
  if (kind == Kind::none || gr.members.size() >= most_steps) return false;
  Chain chain = gr.chain;
  std::set<ValueId> inputs = gr.inputs;
  const int64_t width = kind == Kind::sum ? sums_row(g_, n) : gr.width;
  if (width && !join_chains(chain, {1, width, gr.elements})) return false;
  for (ValueId v : n.in) {
    const Operand o = operand_in(gr, n, v, kind);
    if (o.value && group(o.value) == i && !refers(i, o)) return false;
    Chain c{1};  // its axes are those of the node, or of a broadcast behind it
    for (const auto& a : o.axes)
      if (c.push_back(a.from); a.to != INT64_MAX) c.push_back(a.to);
    if (!o.axes.empty() && !join_chains(chain, c)) return false;
    if (o.value && group(o.value) != i) inputs.insert(o.value);
  }
  if (inputs.size() > most_inputs || !whole_rows(chain, width)) return false;
  gr.chain = chain, gr.inputs = inputs, gr.width = width;
  gr.members.push_back(p);
  group_of_[n.out[0]] = i;
  return true;
}
bool Fuser::merge(int32_t into, int32_t from) {
  Group &a = groups_[size_t(into)], &b = groups_[size_t(from)];
  std::set<ValueId> inputs = a.inputs;
  inputs.insert(b.inputs.begin(), b.inputs.end());
  Chain chain = a.chain;
  const int64_t width = std::max(a.width, b.width);
  if (a.elements != b.elements || a.extent != b.extent || a.rows != b.rows || inputs.size() > most_inputs ||
      (a.width && b.width && a.width != b.width) || a.members.size() + b.members.size() >= most_steps ||
      !join_chains(chain, b.chain) || !whole_rows(chain, width))
    return false;
  a.inputs = inputs, a.chain = chain, a.width = width;
  for (auto [x, y] : {std::pair(&a.members, &b.members), {&a.views, &b.views}, {&a.late, &b.late}}) {
    x->insert(x->end(), y->begin(), y->end());
    std::sort(x->begin(), x->end());
  }
  b.open = false, b.merged_into = into;
  std::erase(open_, from);
  return true;
}

void Fuser::close_readers(ValueId changed) {
  for (size_t k = open_.size(); k-- > 0;)
    for (ValueId v : groups_[size_t(open_[k])].inputs)
      if (root_[v] == root_[changed]) {
        close(open_[k]);
        break;
      }
}

bool Fuser::reads_of(const Node& n, int32_t i) const {
  for (ValueId v : n.in)
    if (group(v) == i) return true;
  return false;
}

int32_t Fuser::find_group(const Node& n, int32_t p) {
  int32_t mine = -1;
  for (ValueId v : n.in) {  // groups that make an operand become one
    const int32_t i = group(v);
    if (i < 0 || i == mine) continue;
    const Group& gr = groups_[size_t(i)];
    const Kind kind = kind_in(gr, n);
    if (kind == Kind::none || !refers(i, operand_in(gr, n, v, kind))) continue;
    if (mine < 0)
      mine = i;
    else if (!merge(mine, i))
      close(i);
  }
  if (mine >= 0 && join(mine, p)) return mine;
  for (size_t k = open_.size(); k-- > 0;) {  // one that reads an operand
    const int32_t i = open_[k];
    const Group& gr = groups_[size_t(i)];
    const Kind kind = kind_in(gr, n);
    if (kind != Kind::element && kind != Kind::sum) continue;
    bool shares = false;
    for (ValueId v : n.in) {
      const Operand o = operand_in(gr, n, v, kind);
      shares |= o.full && gr.inputs.count(o.value);
    }
    if (shares && !reads_of(n, i) && join(i, p)) return i;
  }
  return -1;
}

void Fuser::open(const Node& n, int32_t p) {
  const kb_type &out = g_.type(n.out[0]), &all = sums_row(g_, n) ? g_.type(n.in[0]) : out;
  Group gr;
  gr.elements = kb::elements(all), gr.extent = out.extent;
  gr.rows = out.extent ? out.shape[0] : 0;
  gr.chain = {1};
  if (gr.elements > 1) gr.chain.push_back(gr.elements);
  groups_.push_back(gr);
  const auto i = int32_t(groups_.size() - 1);
  if (!join(i, p)) {
    groups_.pop_back();
    return;
  }
  open_.push_back(i);
  if (open_.size() > most_open) close(open_.front());
}

void Fuser::visit(int32_t p) {
  const Node& n = node(p);
  if (n.kind != NodeKind::op) return;
  if (n.traits() & KB_VIEW) {
    if (const int32_t i = group(n.in[0]); i >= 0) {
      groups_[size_t(i)].views.push_back(p);
      group_of_[n.out[0]] = i;
    } else if (const int32_t k = late_for(n.in[0]); k >= 0) {
      groups_[size_t(k)].late.push_back(p);
      late_of_[n.out[0]] = k;
    }
    return;
  }
  const auto each_operand = [&](auto&& f) {
    for (const auto* list : {&n.in, &n.base})
      for (ValueId v : *list)
        if (v) f(v);
  };
  each_operand([&](ValueId v) {
    if (const int32_t i = late_for(v); i >= 0) close(i);
  });
  for (size_t o = 0; o < n.out.size(); ++o) {
    if (!n.base.empty() && n.base[o]) close_readers(n.base[o]);
    if (!n.alias.empty() && n.alias[o] >= 0) close_readers(n.in[size_t(n.alias[o])]);
  }
  const bool joins = eligible(n) || sums_row(g_, n);
  const int32_t mine = joins ? find_group(n, p) : -1;
  std::set<int32_t> read;  // other groups
  each_operand([&](ValueId v) {
    if (const int32_t i = group(v); i >= 0 && i != mine) read.insert(i);
  });
  if (!joins && read.size() == 1 && n.alias.empty() && n.base.empty() && !(n.traits() & KB_COLLECTIVE) &&
      groups_[size_t(*read.begin())].late.size() < most_late) {
    groups_[size_t(*read.begin())].late.push_back(p);
    for (ValueId o : n.out) late_of_[o] = *read.begin();
    return;
  }
  for (int32_t i : read) close(i);
  if (mine < 0 && joins) open(n, p);
}

std::set<NodeId> Fuser::inside_of(const Group& gr) const {
  std::set<NodeId> inside;
  for (int32_t p : gr.members) inside.insert(order_[size_t(p)]);
  return inside;
}

// A group of too many results is none. Before anything else counts on it.
void Fuser::dissolve_wide() {
  for (Group& gr : groups_) {
    const std::set<NodeId> inside = inside_of(gr);
    size_t results = 0;
    for (int32_t p : gr.members) results += read_by_others(node(p).out[0], node(p).out[0], inside);
    if (results <= most_outputs) continue;
    for (int32_t p : gr.members) group_of_[node(p).out[0]] = -1;
    for (int32_t p : gr.views) group_of_[node(p).out[0]] = -1;
    gr.members.clear(), gr.views.clear(), gr.late.clear(), gr.inputs.clear();
  }
}

bool Fuser::read_by_others(ValueId v, ValueId made, const std::set<NodeId>& inside) const {
  for (NodeId u : uses_[v]) {
    if (u == no_node) return true;
    if (inside.count(u)) continue;
    const Node& n = g_.nodes[u];
    if (n.traits() & KB_VIEW) {
      if (read_by_others(n.out[0], made, inside)) return true;
      continue;
    }
    const int32_t i = n.out.size() == 1 ? final_group(n.out[0]) : -1;
    if (i < 0 || !groups_[size_t(i)].not_read.count(made)) return true;
  }
  return false;
}

std::vector<NodeId> fuse(Graph& g, const std::vector<NodeId>& order, ValueId barrier) {
  return Fuser(g, order, barrier).run();
}

}  // namespace kitbash
