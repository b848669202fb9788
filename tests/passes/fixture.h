// fixture.h: a registry that knows the base ops and nothing else, a store, and graphs over both.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "graph/graph.h"
#include "kitbash/op.h"
#include "ops/ops.h"
#include "passes/passes.h"

namespace kitbash::test {

struct Bench {
  Registry registry{Catalog::from_manifests({})};
  Store store;
  Bench() { register_base_ops(registry); }

  std::unique_ptr<Graph> graph(uint32_t mode = KB_TRAIN, uint32_t compute = KB_F32) {
    GraphOptions o;
    o.mode = mode, o.compute = compute;
    return std::make_unique<Graph>("test", o, registry, store);
  }
  // A stored value, and the value that it has before the program runs.
  ValueId stored(Graph& g, const std::string& name, const std::vector<int64_t>& shape, Life life = Life::accumulator) {
    StoreEntry e;
    e.name = name;
    e.type = make_type(KB_F32, shape);
    e.life = life;
    store.declare(e);
    return g.read(name);
  }
};

inline kb::Value input(Graph& g, kb::Builder& b, const std::string& name, const std::vector<int64_t>& shape,
                       uint32_t dtype = KB_F32) {
  return {&b, g.input(name, make_type(dtype, shape))};
}

inline int64_t count(const Graph& g, const char* op, Phase phase) {
  return std::count_if(g.nodes.begin(), g.nodes.end(), [&](const Node& n) { return n.is(op) && n.phase == phase; });
}

inline size_t position(const std::vector<NodeId>& order, NodeId id) {
  return size_t(std::find(order.begin(), order.end(), id) - order.begin());
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const kb::Error& e) {
    return e.what();
  }
  return "no error";
}

inline int64_t no_workspace(const Node&) { return 0; }

}  // namespace kitbash::test
