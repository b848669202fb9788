// Row runs. Which ops are row-local is a property of the op and its attributes: pointwise ops, reductions and norms within a
// row, and moves that keep axis 0 where it is.
#include <cstring>

#include "kitbash/op.h"
#include "passes/passes.h"

namespace kitbash {

namespace {

constexpr int64_t small_elements = 8192;  // what may run before a run instead of ending it

int64_t attr_int(const Node& n, const char* name) {
  for (uint32_t i = 0; i < n.n_attr; ++i)
    if (!std::strcmp(n.attr[i].name, name)) return n.attr[i].v.i;
  return 0;
}
bool keeps_axis_0(const Node& n, int rank) {
  const int64_t a = attr_int(n, "axis");
  return (a < 0 ? a + rank : a) != 0;
}

}  // namespace

std::vector<char> row_inputs(const Graph& g, const Node& n) {
  if (n.kind != NodeKind::op || n.out.empty() || (n.traits() & (KB_VIEW | KB_SOURCE | KB_COLLECTIVE)) ||
      !n.base.empty() || !n.alias.empty())
    return {};
  const kb_type& out = g.type(n.out[0]);
  if (out.rank < 1 || n.in.empty() || !n.in[0]) return {};
  const kb_type& x = g.type(n.in[0]);
  const std::string& op = n.op->name;
  std::vector<char> cut(n.in.size(), 0);
  for (ValueId o : n.out)
    if (g.type(o).rank < 1 || g.type(o).shape[0] != out.shape[0] || g.type(o).extent != out.extent) return {};
  if (n.traits() & KB_POINTWISE) {
    for (size_t i = 0; i < n.in.size(); ++i) {
      if (!n.in[i]) continue;
      const kb_type& t = g.type(n.in[i]);
      cut[i] = t.rank == out.rank && t.shape[0] == out.shape[0] && out.shape[0] > 1;
    }
    return cut;
  }
  if (x.rank < 2 || x.shape[0] != out.shape[0]) return {};
  cut[0] = 1;
  if (op == "softmax" || op == "rms_norm" || op == "topk") return cut;
  if (op == "sum" || op == "amax" || op == "slice" || op == "unslice")
    return keeps_axis_0(n, x.rank) ? cut : std::vector<char>{};
  if (op == "sum_to" || op == "broadcast") return x.rank == out.rank ? cut : std::vector<char>{};
  if (op == "take" || op == "untake") return {1, 1};
  if (op == "concat") return keeps_axis_0(n, x.rank) ? std::vector<char>(n.in.size(), 1) : std::vector<char>{};
  if (op == "permute") return n.attr[0].v.is[0] == 0 ? cut : std::vector<char>{};
  return {};
}

std::vector<RowRun> find_row_runs(const Graph& g, const std::vector<NodeId>& order,
                                  const std::function<bool(const Node&)>& eligible, int32_t barrier) {
  std::vector<RowRun> runs;
  RowRun run;
  std::set<ValueId> made;  // by members of the run, and views of it
  auto close = [&] {
    if (run.members.size() > 1) {
      run.first = run.members.front(), run.last = run.members.back();
      std::erase_if(run.before, [&](int32_t p) { return p < run.first || p > run.last; });
      runs.push_back(run);
    }
    run = {};
    made.clear();
  };
  for (int32_t p = 0; p < int32_t(order.size()); ++p) {
    const Node& n = g.nodes[order[size_t(p)]];
    if (p == barrier + 1) close();
    if (n.kind != NodeKind::op) continue;
    if (n.traits() & KB_VIEW) {
      if (made.count(n.in[0])) {
        if (g.type(n.out[0]).rank < 1 || g.type(n.out[0]).shape[0] != run.rows) {
          close();
          continue;
        }
        made.insert(n.out[0]);
      }
      continue;
    }
    const kb_type& out = g.type(n.out[0]);
    if (!row_inputs(g, n).empty() && eligible(n) && out.shape[0] >= 16) {
      if (!run.members.empty() && (run.rows != out.shape[0] || run.extent != out.extent)) close();
      // A whole operand must not come from the run itself.
      const std::vector<char> cut = row_inputs(g, n);
      for (size_t i = 0; i < n.in.size(); ++i)
        if (!cut[i] && made.count(n.in[i])) {
          close();
          break;
        }
      run.rows = out.shape[0], run.extent = out.extent;
      run.members.push_back(p);
      for (ValueId o : n.out) made.insert(o);
      continue;
    }
    bool small = true;
    for (ValueId o : n.out) small &= kb::elements(g.type(o)) <= small_elements;
    for (ValueId i : n.in) small &= !i || (!made.count(i) && kb::elements(g.type(i)) <= small_elements);
    if (small && !run.members.empty() && n.alias.empty() && n.base.empty()) {
      run.before.push_back(p);
      continue;
    }
    close();
  }
  close();
  return runs;
}

}  // namespace kitbash
