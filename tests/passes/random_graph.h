// random_graph.h: graphs of any form from a seed, for properties that must hold for all of them.
#pragma once
#include <random>

#include "tests/passes/fixture.h"

namespace kitbash::test {

// In place, as a kernel of a state is: output 0 is input 0 changed.
struct Bump {
  static constexpr const char* name = "test_bump";
  void infer(kb::Infer& s) const {
    s.like(s.in(0, "state"));
    s.in_place(0, 0);
  }
};
// Two outputs, both in place of an input, which may be the same one.
struct BumpTwo {
  static constexpr const char* name = "test_bump_two";
  void infer(kb::Infer& s) const {
    s.like(s.in(0, "a")), s.like(s.in(1, "b"));
    s.in_place(0, 0), s.in_place(1, 1);
  }
};

class RandomGraph {
 public:
  explicit RandomGraph(uint32_t seed)
      : own_(std::make_unique<Bench>()), registry(own_->registry), store(own_->store), random_(seed) {
    registry.add_base_op(kb::op_table<Bump>());
    registry.add_base_op(kb::op_table<BumpTwo>());
    start();
  }
  // Over a registry and a store of the caller; anything() is not offered there, since no device runs its in-place ops.
  RandomGraph(uint32_t seed, Registry& r, Store& s) : registry(r), store(s), random_(seed) { start(); }

  // Any op, also in place, over inputs and stored values; some results are outputs, some become stored values.
  void anything(int nodes) {
    kb::Builder b = g->builder();
    kb::Values pool{input(*g, b, "x", {8, 16}), input(*g, b, "y", {8, 16})};
    const kb::Value w = input(*g, b, "w", {16, 16}), row = input(*g, b, "row", {16});
    kb::Values old;
    for (int i = 0; i < 4; ++i) {
      old.push_back({&b, stored("e" + std::to_string(i), {8, 16})});
      pool.push_back(old.back());
    }
    for (int i = 0; i < nodes; ++i) step(b, pool, w, row);
    for (size_t i = pool.size(); i-- > 0 && i + 6 > pool.size();)
      // An output that is a stored value itself shows what the store holds after the run, so there is none here.
      if (below(2) && i >= 6) g->output("o" + std::to_string(i), pool[i].id);
    for (const kb::Value& v : old)
      if (below(3)) g->write(v.id, pool[pool.size() - 1 - below(std::min<size_t>(8, pool.size() - 6))].id);
    if (g->outputs.empty()) g->output("o", b.exp(pool.back()).id);
  }

  // A loss over a few layers, differentiated; with `segments`, each layer is a recompute unit. Gradients go to accumulators.
  void training(int layers, bool segments) {
    kb::Builder b = g->builder();
    kb::Value x = input(*g, b, "x", {8, 16});
    std::vector<ValueId> want;
    for (int l = 0; l < layers; ++l) {
      const kb::Value w = input(*g, b, "w" + std::to_string(l), {16, 16}),
                      row = input(*g, b, "r" + std::to_string(l), {16});
      want.insert(want.end(), {w.id, row.id});
      Graph::Scope scope(*g, "layers." + std::to_string(l), Phase::forward, segments ? l : -1);
      kb::Values pool{x};
      for (int i = 0; i < 4; ++i) {
        const kb::Value a = pool[below(pool.size())], c = pool[below(pool.size())];
        switch (below(8)) {
          case 0:
            pool.push_back(b.tanh(a));
            break;
          case 1:
            pool.push_back(a * c);
            break;
          case 2:
            pool.push_back(a + row);
            break;
          case 3:
            pool.push_back(b.linear(a, w));
            break;
          case 4:
            pool.push_back(b.rms_norm(a, row, 1e-5));
            break;
          case 5:
            pool.push_back(b.reshape(b.tanh(b.reshape(a, {16, 8})), {8, 16}));
            break;
          case 6:
            pool.push_back(b.concat({b.slice(a, 1, 8, 16), b.slice(c, 1, 0, 8)}, 1));
            break;
          default:
            pool.push_back(b.softmax(a) - c);
            break;
        }
      }
      x = b.linear(pool.back(), w) + x;
    }
    const kb::Value loss = b.sum(b.reshape(x * x, {-1}), 0);
    g->output("loss", loss.id);
    const auto d = differentiate(*g, loss.id, want);
    Graph::Scope scope(*g, "accumulate", Phase::backward);
    for (const auto& [v, gradient] : d) {
      const kb_type t = g->type(gradient);
      const kb::Value old{&b, stored("grad." + std::to_string(v), {t.shape, t.shape + t.rank})};
      g->write(old.id, (old + kb::Value{&b, gradient}).id);
    }
    if (segments) recompute_segments(*g);
  }

  std::unique_ptr<Graph> g;

 private:
  std::unique_ptr<Bench> own_;

 public:
  Registry& registry;
  Store& store;

 private:
  void start() { g = std::make_unique<Graph>("test", GraphOptions{}, registry, store); }
  ValueId stored(const std::string& name, const std::vector<int64_t>& shape) {
    StoreEntry e;
    e.name = name, e.type = make_type(KB_F32, shape), e.life = Life::accumulator;
    store.declare(e);
    return g->read(name);
  }
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

  void step(kb::Builder& b, kb::Values& pool, const kb::Value& w, const kb::Value& row) {
    const kb::Value a = pool[below(pool.size())], c = pool[below(pool.size())];
    switch (below(10)) {
      case 0:
        pool.push_back(b.exp(a));
        break;
      case 1:
        pool.push_back(a * c);
        break;
      case 2:
        pool.push_back(a + row);
        break;
      case 3:
        pool.push_back(b.linear(a, w));
        break;
      case 4:
        pool.push_back(b.reshape(b.tanh(b.reshape(a, {16, 8})), {8, 16}));
        break;
      case 5:
        pool.push_back(b.emit("test_bump", {a}));
        break;
      case 6:
        for (const kb::Value& v : b.emit_n("test_bump_two", {a, c})) pool.push_back(v);
        break;
      case 7:
        pool.push_back(b.emit_n("rms_norm_backward", {a, row, c}, {{"eps", 1e-5}})[0]);
        break;
      case 8:
        pool.push_back(a + b.linear(c, w));
        break;  // may be folded
      default:
        pool.push_back(b.broadcast(b.sum(a, 0, true), {8, 16}));
        break;
    }
  }

  std::mt19937 random_;
};

}  // namespace kitbash::test
