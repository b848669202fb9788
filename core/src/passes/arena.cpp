// The arena: every buffer gets an offset, from the first position at which it is written to the last at which it is read.
// Buffers are shared by views, by in-place ops whose input dies, and by a value that is written to the store entry it was
// computed from. Offsets are given in the order of time, best fit.
#include <algorithm>

#include "kitbash/op.h"
#include "passes/passes.h"

namespace kitbash {

namespace {

constexpr int64_t align = 64;
int64_t rounded(int64_t n) { return (std::max<int64_t>(n, 1) + align - 1) / align * align; }

// Free memory by offset; neighbours merge.
class FreeList {
 public:
  int64_t take(int64_t bytes) {
    auto best = free_.end();
    for (auto f = free_.begin(); f != free_.end(); ++f)
      if (f->second >= bytes && (best == free_.end() || f->second < best->second)) best = f;
    if (best == free_.end()) {
      int64_t at = top_;
      if (!free_.empty() && std::prev(free_.end())->first + std::prev(free_.end())->second == top_) {
        at = std::prev(free_.end())->first;  // grow the last hole
        free_.erase(std::prev(free_.end()));
      }
      top_ = at + bytes;
      return at;
    }
    const auto [at, size] = *best;
    free_.erase(best);
    if (size > bytes) free_[at + bytes] = size - bytes;
    return at;
  }
  void give(int64_t at, int64_t bytes) {
    auto next = free_.emplace(at, bytes).first;
    if (auto after = std::next(next); after != free_.end() && at + bytes == after->first) {
      next->second += after->second;
      free_.erase(after);
    }
    if (next != free_.begin())
      if (auto before = std::prev(next); before->first + before->second == at) {
        before->second += next->second;
        free_.erase(next);
      }
  }
  int64_t top() const { return top_; }

 private:
  std::map<int64_t, int64_t> free_;
  int64_t top_ = 0;
};

struct Planner {
  const Graph& g;
  MemoryPlan plan;
  std::vector<int32_t> position;  // by node
  std::vector<int32_t> last_use;  // by value, through views
  std::vector<ValueId> root;      // a view's underlying value
  std::vector<int32_t> write_of;  // by value: index in writes, or -1
  std::map<std::string, int32_t> store_buffer;
  int32_t end;
  std::vector<int32_t> run_of;  // by position: index in plan.runs, or -1
  std::vector<char> early;  // by position: runs before its run, so it must not take a buffer that the run still reads

  Planner(const Graph& graph, std::vector<NodeId> order)
      : g(graph),
        position(graph.nodes.size(), -1),
        last_use(graph.values.size(), -1),
        root(graph.values.size()),
        write_of(graph.values.size(), -1),
        end(int32_t(order.size())) {
    plan.order = std::move(order);
    plan.buffer_of.assign(g.values.size(), -1);
  }

  void find_uses() {
    for (ValueId v = 0; v < root.size(); ++v) root[v] = v;
    for (int32_t p = 0; p < end; ++p) {
      const Node& n = g.nodes[plan.order[size_t(p)]];
      position[plan.order[size_t(p)]] = p;
      if (n.traits() & KB_VIEW) root[n.out[0]] = root[n.in[0]];
    }
    for (int32_t p = 0; p < end; ++p) {
      const Node& n = g.nodes[plan.order[size_t(p)]];
      if (n.traits() & KB_VIEW) continue;
      for (const auto* list : {&n.in, &n.base})
        for (ValueId v : *list)
          if (v) last_use[root[v]] = std::max(last_use[root[v]], p);
    }
    for (const auto& [name, v] : g.outputs) last_use[root[v]] = end;
    for (const auto& [name, v] : g.reports) last_use[root[v]] = end;
    for (size_t w = 0; w < g.writes.size(); ++w) {
      const ValueId v = root[g.writes[w].value];
      write_of[v] = int32_t(w);
      last_use[v] = std::max(last_use[v], 0);  // kept; the copy out extends it
    }
  }

  int32_t new_buffer(Buffer::Home home, int64_t bytes, int32_t p, NodeId node) {
    Buffer b;
    b.home = home, b.bytes = bytes, b.first = p, b.last = p, b.node = node;
    plan.buffers.push_back(b);
    return int32_t(plan.buffers.size() - 1);
  }
  int32_t store_of(const std::string& entry, int64_t bytes) {
    auto [at, fresh] = store_buffer.emplace(entry, 0);
    if (fresh) {
      at->second = new_buffer(Buffer::Home::store, bytes, 0, no_node);
      plan.buffers.back().entry = entry;
      plan.buffers.back().last = end;
    }
    return at->second;
  }

  // May the output of the node at p take over the buffer of value `in`? The buffer must not be read later, and memory of the
  // store only changes hands when the output is what the store entry becomes.
  bool may_take(ValueId in, ValueId out, int32_t p) const {
    const int32_t buffer = plan.buffer_of[in];
    if (buffer < 0) return false;
    const Buffer& b = plan.buffers[size_t(buffer)];
    if (b.home == Buffer::Home::feed || last_use[root[in]] > p || write_of[root[in]] >= 0) return false;
    if (b.home == Buffer::Home::store) {
      const int32_t w = write_of[out];
      return w >= 0 && g.writes[size_t(w)].name == b.entry;
    }
    return b.last <= p;
  }

  // What output o is added to or changed from, in place; 0: nothing.
  static ValueId old_value(const Node& n, size_t o) {
    if (!n.base.empty() && n.base[o]) return n.base[o];
    return !n.alias.empty() && n.alias[o] >= 0 ? n.in[size_t(n.alias[o])] : 0;
  }

  // The store entry that a value becomes, where its old content is not read at all: it is then made in place. Else empty. Nothing
  // is made in the store up to the position where step_ok is decided.
  std::string made_in(ValueId v, int32_t p) const {
    const auto ok = g.outputs.find("step_ok");
    if (write_of[v] < 0 || (ok != g.outputs.end() && p <= position[g.values[ok->second].maker])) return {};
    const std::string& entry = g.writes[size_t(write_of[v])].name;
    const auto r = g.reads.find(entry);
    return r == g.reads.end() || last_use[root[r->second]] < 0 ? entry : std::string();
  }

  void assign_output(const Node& n, size_t o, int32_t p) {
    const ValueId v = n.out[o];
    const kb_type& t = g.type(v);
    const bool wanted = last_use[v] >= 0 || write_of[v] >= 0;
    const ValueId from = old_value(n, o);
    if (!wanted && !from) return;
    int32_t buffer = -1;
    if (from && may_take(from, v, p)) {
      buffer = plan.buffer_of[from];
    } else if (from) {
      buffer = new_buffer(Buffer::Home::arena, type_bytes(t), p, plan.order[size_t(p)]);
      plan.copies_in.push_back({p, from, v});
    } else if ((n.traits() & KB_POINTWISE) && !early[size_t(p)]) {
      for (ValueId in : n.in)
        if (in && same_shape(g.type(in), t) && g.type(in).dtype == t.dtype && may_take(in, v, p)) {
          buffer = plan.buffer_of[in];
          break;
        }
    }
    if (const std::string entry = buffer < 0 ? made_in(v, p) : ""; !entry.empty())
      buffer = store_of(entry, type_bytes(t));
    if (buffer < 0) buffer = new_buffer(Buffer::Home::arena, type_bytes(t), p, plan.order[size_t(p)]);
    plan.buffer_of[v] = buffer;
    plan.buffers[size_t(buffer)].last = std::max({plan.buffers[size_t(buffer)].last, last_use[v], p});
  }

  void assign() {
    for (int32_t p = 0; p < end; ++p) {
      const NodeId id = plan.order[size_t(p)];
      const Node& n = g.nodes[id];
      if (n.kind == NodeKind::read) {
        plan.buffer_of[n.out[0]] = store_of(n.name, type_bytes(g.type(n.out[0])));
      } else if (n.kind == NodeKind::input) {
        plan.buffer_of[n.out[0]] = new_buffer(Buffer::Home::feed, type_bytes(g.type(n.out[0])), 0, id);
        plan.buffers.back().last = end;
      } else if (n.traits() & KB_VIEW) {
        plan.buffer_of[n.out[0]] = plan.buffer_of[n.in[0]];
      } else {
        // Two outputs must not take the same input.
        std::vector<int32_t> taken;
        for (size_t o = 0; o < n.out.size(); ++o) {
          assign_output(n, o, p);
          const int32_t b = plan.buffer_of[n.out[o]];
          if (b >= 0 && std::count(taken.begin(), taken.end(), b)) {
            const ValueId v = n.out[o];
            plan.buffer_of[v] = new_buffer(Buffer::Home::arena, type_bytes(g.type(v)), p, id);
            plan.buffers.back().last = std::max(last_use[v], p);
            if (const ValueId from = old_value(n, o)) plan.copies_in.push_back({p, from, v});
          }
          taken.push_back(plan.buffer_of[n.out[o]]);
        }
      }
    }
  }

  // A value that was not computed in its store entry is copied there once every reader of the old value has run.
  void copy_out() {
    for (size_t w = 0; w < g.writes.size(); ++w) {
      const Write& write = g.writes[w];
      const int32_t b = plan.buffer_of[write.value];
      if (plan.buffers[size_t(b)].home == Buffer::Home::store && plan.buffers[size_t(b)].entry == write.name) continue;
      int32_t p = std::max(0, position[g.values[root[write.value]].maker]);
      if (auto r = g.reads.find(write.name); r != g.reads.end()) p = std::max(p, last_use[root[r->second]]);
      p = std::min(p, end - 1);
      store_of(write.name, type_bytes(g.type(write.value)));
      plan.copies_out.push_back({p, write.value, w});
      plan.buffers[size_t(b)].last = std::max(plan.buffers[size_t(b)].last, p);
    }
    std::stable_sort(plan.copies_out.begin(), plan.copies_out.end(),
                     [](const CopyOut& a, const CopyOut& b) { return a.position < b.position; });
  }

  // All of a run happens at once: what it frees is free after its last position, what it makes exists from its first. Values
  // that only the run sees live in its scratch.
  void settle_runs() {
    run_of.assign(size_t(end) + 1, -1);
    for (size_t r = 0; r < plan.runs.size(); ++r)
      for (int32_t p = plan.runs[r].first; p <= plan.runs[r].last; ++p) run_of[size_t(p)] = int32_t(r);
    std::vector<char> copied(plan.buffers.size(), 0);  // read by a copy, so kept whole
    for (const CopyOut& c : plan.copies_out) copied[size_t(plan.buffer_of[c.value])] = 1;
    for (const CopyIn& c : plan.copies_in) copied[size_t(plan.buffer_of[c.from])] = 1;
    std::vector<std::vector<int32_t>> inside(plan.runs.size());
    for (int32_t i = 0; i < int32_t(plan.buffers.size()); ++i) {
      Buffer& b = plan.buffers[size_t(i)];
      if (b.home != Buffer::Home::arena || b.last >= end) continue;
      const int32_t r = run_of[size_t(b.first)];
      const bool member =
          r >= 0 && std::count(plan.runs[size_t(r)].members.begin(), plan.runs[size_t(r)].members.end(), b.first);
      if (member && !copied[size_t(i)] && b.last <= plan.runs[size_t(r)].last &&
          b.bytes % plan.runs[size_t(r)].rows == 0) {
        b.home = Buffer::Home::tile;
        inside[size_t(r)].push_back(i);
        continue;
      }
      if (r >= 0) b.first = plan.runs[size_t(r)].first;
      if (const int32_t l = run_of[size_t(b.last)]; l >= 0) b.last = plan.runs[size_t(l)].last;
    }
    for (size_t r = 0; r < plan.runs.size(); ++r) {
      FreeList scratch;
      RowRun& run = plan.runs[r];
      for (int32_t p = run.first; p <= run.last; ++p) {
        for (int32_t i : inside[r]) {
          Buffer& b = plan.buffers[size_t(i)];
          if (b.first == p) b.offset = scratch.take(b.bytes / run.rows);
        }
        for (int32_t i : inside[r]) {
          const Buffer& b = plan.buffers[size_t(i)];
          if (b.last == p) scratch.give(b.offset, b.bytes / run.rows);
        }
      }
      run.row_bytes = scratch.top();
    }
  }

  void offsets(const std::function<int64_t(const Node&)>& workspace) {
    std::vector<std::vector<int32_t>> starts(size_t(end) + 1), ends(size_t(end) + 1);
    FreeList memory;
    for (int32_t i = 0; i < int32_t(plan.buffers.size()); ++i) {
      Buffer& b = plan.buffers[size_t(i)];
      if (b.home == Buffer::Home::store || b.home == Buffer::Home::tile) continue;
      if (b.home == Buffer::Home::feed) {  // feeds lie in front, alive throughout
        b.offset = memory.take(rounded(b.bytes));
        plan.feed_bytes += rounded(b.bytes);
        continue;
      }
      starts[size_t(b.first)].push_back(i);
      ends[size_t(b.last)].push_back(i);
    }
    plan.workspace_offset.assign(size_t(end), -1);
    for (int32_t p = 0; p < end; ++p) {
      for (int32_t i : starts[size_t(p)])
        plan.buffers[size_t(i)].offset = memory.take(rounded(plan.buffers[size_t(i)].bytes));
      const Node& n = g.nodes[plan.order[size_t(p)]];
      if (const int64_t w = n.kind == NodeKind::op ? workspace(n) : 0; w > 0) {
        plan.workspace_offset[size_t(p)] = memory.take(rounded(w));
        plan.peak_workspace = std::max(plan.peak_workspace, w);
        memory.give(plan.workspace_offset[size_t(p)], rounded(w));
      }
      for (int32_t i : ends[size_t(p)])
        memory.give(plan.buffers[size_t(i)].offset, rounded(plan.buffers[size_t(i)].bytes));
    }
    plan.arena_bytes = memory.top();
  }
};

}  // namespace

MemoryPlan plan_memory(const Graph& g, std::vector<NodeId> order, const std::function<int64_t(const Node&)>& workspace,
                       std::vector<RowRun> runs) {
  Planner p(g, std::move(order));
  p.plan.runs = std::move(runs);
  p.early.assign(p.plan.order.size(), 0);
  for (const RowRun& r : p.plan.runs)
    for (int32_t b : r.before) p.early[size_t(b)] = 1;
  p.find_uses();
  p.assign();
  p.copy_out();
  p.settle_runs();
  p.offsets(workspace);
  return std::move(p.plan);
}

}  // namespace kitbash
