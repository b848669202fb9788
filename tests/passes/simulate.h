// simulate.h: runs a memory plan on tokens instead of numbers. Every 64 bytes of the arena, and every store entry, hold the
// value that was last put there; each node must find its operands. What an overlap, a wrong order or a missed copy would
// do to numbers, it does to tokens.
#pragma once
#include <map>
#include <set>

#include "passes/passes.h"

namespace kitbash::test {

class Simulation {
 public:
  Simulation(const Graph& g, const MemoryPlan& plan) : g_(g), plan_(plan), arena_(size_t(plan.arena_bytes / 64), -1) {}

  // Runs everything; returns the first broken rule, or "".
  std::string run(const std::function<int64_t(const Node&)>& workspace) {
    for (const auto& [name, v] : g_.reads) store_[name] = int64_t(v);
    for (const auto& [name, v] : g_.inputs)
      if (plan_.buffer_of[v] >= 0) put(plan_.buffer_of[v], v);
    size_t in = 0, out = 0;
    for (int32_t p = 0; p < int32_t(plan_.order.size()); ++p) {
      const Node& n = g_.nodes[plan_.order[size_t(p)]];
      std::set<ValueId> copied;
      for (; in < plan_.copies_in.size() && plan_.copies_in[in].position == p; ++in) {
        const CopyIn& c = plan_.copies_in[in];
        need(c.from, n, "is copied");
        if (plan_.buffer_of[c.to] >= 0) put(plan_.buffer_of[c.to], root(c.from));
        copied.insert(c.to);
      }
      if (n.kind == NodeKind::op && !(n.traits() & KB_VIEW)) step(n, p, workspace(n));
      for (; out < plan_.copies_out.size() && plan_.copies_out[out].position == p; ++out) {
        const Write& w = g_.writes[plan_.copies_out[out].write];
        need(w.value, n, "is copied to the store");
        store_[w.name] = int64_t(root(w.value));
      }
      if (!broken_.empty()) return broken_ + " (position " + std::to_string(p) + ")";
    }
    if (in != plan_.copies_in.size() || out != plan_.copies_out.size()) return "a copy never happens";
    for (const auto* list : {&g_.outputs, &g_.reports})
      for (const auto& [name, v] : *list)
        if (!holds(plan_.buffer_of[v], root(v))) return "output " + name + " does not last to the end";
    for (const Write& w : g_.writes)
      if (store_.at(w.name) != int64_t(root(w.value))) return "'" + w.name + "' does not become what is written";
    return broken_;
  }

 private:
  ValueId root(ValueId v) const {
    while (g_.maker(v).traits() & KB_VIEW) v = g_.maker(v).in[0];
    return v;
  }
  struct Range {
    int64_t begin = 0, end = 0;
    bool meets(const Range& o) const { return begin < o.end && o.begin < end; }
  };
  Range range(int32_t buffer) const {  // in units of 64 bytes; empty for the store
    if (buffer < 0) return {};
    const Buffer& b = plan_.buffers[size_t(buffer)];
    if (b.home == Buffer::Home::store) return {};
    return {b.offset / 64, (b.offset + std::max<int64_t>(b.bytes, 1) + 63) / 64};
  }
  void put(int32_t buffer, ValueId v) {
    const Buffer& b = plan_.buffers[size_t(buffer)];
    if (b.home == Buffer::Home::store) {
      store_[b.entry] = int64_t(v);
      return;
    }
    const Range r = range(buffer);
    if (b.offset % 64 || r.end > int64_t(arena_.size())) broken_ = "a buffer is not aligned or lies outside the arena";
    for (int64_t i = r.begin; i < r.end && broken_.empty(); ++i) arena_[size_t(i)] = int64_t(v);
  }
  bool holds(int32_t buffer, ValueId v) const {
    if (buffer < 0) return false;
    const Buffer& b = plan_.buffers[size_t(buffer)];
    if (b.home == Buffer::Home::store) return store_.at(b.entry) == int64_t(v);
    const Range r = range(buffer);
    return std::all_of(arena_.begin() + r.begin, arena_.begin() + r.end, [&](int64_t t) { return t == int64_t(v); });
  }
  void need(ValueId v, const Node& n, const char* use) {
    if (broken_.empty() && !holds(plan_.buffer_of[v], root(v)))
      broken_ = g_.describe(n) + ": value " + std::to_string(v) + " (" + g_.describe(g_.maker(v)) +
                ") is gone where it " + use;
  }

  void step(const Node& n, int32_t p, int64_t workspace) {
    for (ValueId v : n.in)
      if (v) need(v, n, "is read");
    std::set<int32_t> written;
    for (size_t o = 0; o < n.out.size(); ++o) {
      const int32_t b = plan_.buffer_of[n.out[o]];
      if (b < 0) continue;
      if (!written.insert(b).second) broken_ = g_.describe(n) + ": two outputs share a buffer";
      const ValueId from = !n.base.empty() && n.base[o]          ? n.base[o]
                           : !n.alias.empty() && n.alias[o] >= 0 ? n.in[size_t(n.alias[o])]
                                                                 : 0;
      if (from && !holds(b, root(from)))
        broken_ = g_.describe(n) + ": an output that is changed in place lacks its old value";
      for (ValueId v : n.in) {
        if (!v || plan_.buffer_of[v] < 0) continue;
        if (plan_.buffer_of[v] == b) {
          const bool element = (n.traits() & KB_POINTWISE) && same_shape(g_.type(v), g_.type(n.out[o])) &&
                               g_.type(v).dtype == g_.type(n.out[o]).dtype;
          if (!element && root(v) != root(from)) broken_ = g_.describe(n) + ": an output overwrites an operand";
        } else if (range(plan_.buffer_of[v]).meets(range(b))) {
          broken_ = g_.describe(n) + ": an output overlaps an operand";
        }
      }
      for (size_t q = 0; q < o; ++q)
        if (plan_.buffer_of[n.out[q]] >= 0 && range(plan_.buffer_of[n.out[q]]).meets(range(b)))
          broken_ = g_.describe(n) + ": two outputs overlap";
    }
    if (workspace > 0) {
      const int64_t at = plan_.workspace_offset[size_t(p)];
      const Range w{at / 64, (at + workspace + 63) / 64};
      if (at < 0 || at % 64 || w.end > int64_t(arena_.size()))
        broken_ = g_.describe(n) + ": its workspace lies outside";
      for (const auto* list : {&n.in, &n.out})
        for (ValueId v : *list)
          if (v && plan_.buffer_of[v] >= 0 && range(plan_.buffer_of[v]).meets(w))
            broken_ = g_.describe(n) + ": its workspace overlaps a value";
      for (int64_t i = w.begin; i < w.end && broken_.empty(); ++i) arena_[size_t(i)] = -2;
    }
    for (ValueId v : n.out)
      if (plan_.buffer_of[v] >= 0) put(plan_.buffer_of[v], v);
  }

  const Graph& g_;
  const MemoryPlan& plan_;
  std::vector<int64_t> arena_;  // the value that each 64 bytes hold; -1: nothing yet, -2: a workspace was there
  std::map<std::string, int64_t> store_;
  std::string broken_;
};

}  // namespace kitbash::test
