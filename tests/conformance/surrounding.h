// surrounding.h: the smallest graph in which a component of each kind can stand, with the gradient of everything it has.
#pragma once
#include "../numerics/lab.h"

namespace kitbash::test {

constexpr int64_t rows = 10, width = 16, vocab = 11;

class Surrounding {
 public:
  Surrounding(Bench& bench, uint32_t mode) : bench_(bench), graph(bench.graph(mode)), b_(graph->builder()) {}

  // Builds the component as its kind says (kinds/*.h). Throws kb::Error for a kind that has no surrounding here.
  void build() {
    const std::string& kind = bench_.instance->kind();
    if (kind == "activation")
      floats(call(0, {in("gate", KB_COMPUTE, {rows, width}), in("up", KB_COMPUTE, {rows, width})}));
    else if (kind == "attention")
      floats(call(0, kb::with({x()}, sequence())));
    else if (kind == "decay")
      floats(call(0, {in("z", KB_WIDE, {rows, 2, 8})}));
    else if (kind == "ffn")
      floats(call(0, {x(), document()}));
    else if (kind == "norm")
      floats(call(0, {x()}));
    else if (kind == "objective")
      objective();
    else if (kind == "optimizer")
      optimizer();
    else if (kind == "residual")
      residual();
    else if (kind == "router")
      router();
    else
      kb::fail("kind ", kind, " has no surrounding in this test; add one");
  }

  // Sums the outputs with random weights and gives every float input and parameter its gradient.
  void differentiate_all() {
    kb::Value loss;
    for (const kb::Value& v : outputs) {
      kb::Value wide = b_.wide(v);
      if (kb::elements(v.type()) > 1) {
        kb_type t = wide.type();
        t.lo = -INFINITY, t.hi = INFINITY;
        const kb::Value up{&b_, graph->input("up." + std::to_string(v.id), t)};
        wide = b_.sum(b_.reshape(wide * up, {-1}), 0);
      }
      loss = loss ? loss + wide : wide;
    }
    for (ValueId v : graph->losses) loss = loss + kb::Value{&b_, v};
    std::vector<std::pair<std::string, ValueId>> want;
    for (const auto& [name, v] : graph->inputs)
      if (graph->type(v).dtype >= KB_BF16 && name.compare(0, 3, "up.") && name != "loss_weight")
        want.emplace_back(name, v);
    for (const auto& [name, v] : graph->init) want.emplace_back(name, graph->reads.at(name));
    std::vector<ValueId> ids;
    for (const auto& [name, v] : want) ids.push_back(v);
    const auto d = differentiate(*graph, loss.id, ids);
    for (const auto& [name, v] : want) {
      auto g = d.find(v);
      if (g == d.end()) {
        without.push_back(name);
        continue;
      }
      if (graph->type(g->second).dtype != graph->type(v).dtype)
        kb::fail("the gradient of ", name, " is ", type_text(graph->type(g->second)), " but must be ",
                 type_text(graph->type(v)));
      graph->output("grad." + name, g->second);
    }
  }

  // Everything that a program of this graph reads gets numbers.
  static void fill(Program& p, Bench& bench) {
    uint64_t seed = 0;
    for (const auto& [name, v] : p.graph().inputs) {
      const kb_type& t = p.graph().type(v);
      Numbers n = t.dtype >= KB_BF16 ? normal(size_t(kb::elements(t)), ++seed) : Numbers(size_t(kb::elements(t)), 0);
      if (name == "cu") n = {0, 6, double(rows)};
      if (name == "position" || name == "document")
        for (int64_t i = 0; i < rows; ++i)
          n[size_t(i)] = name == "document" ? double(i >= 6) : double(i < 6 ? i : i - 6);
      if (name == "slot") n = {1, 0};
      if (!name.compare(0, 4, "step")) n = {1};
      if (!name.compare(0, 2, "lr")) n = {0.1};
      put(p.input(name), t, n);
    }
    for (const StoreEntry& e : bench.store.entries())
      if (e.life == Life::param) bench.set(e.name, normal(size_t(kb::elements(e.type)), ++seed, 0.2));
  }

 private:
  kb::Value in(const std::string& name, uint32_t dtype, const std::vector<int64_t>& shape, bool extent = true) {
    const uint32_t e = extent && !shape.empty() && shape[0] == rows ? graph->extent("tokens") : 0;
    return {&b_, graph->input(name, make_type(graph->resolve(dtype), shape, e))};
  }
  kb::Value x() { return in("x", KB_COMPUTE, {rows, width}); }
  kb::Value document() { return in("document", KB_I32, {rows}); }
  kb::Sequence sequence() {
    kb::Sequence s{in("cu", KB_I32, {3}), in("position", KB_I32, {rows}), document(), {}, {}};
    if (graph->mode == KB_PREFILL || graph->mode == KB_DECODE)
      s.past = in("past", KB_I32, {2}), s.slot = in("slot", KB_I32, {2});
    return s;
  }
  kb::Values call(uint32_t verb, const kb::Values& v, kb::Attrs attrs = {}) {
    kb::Values out = graph->build(*bench_.instance, "part", verb, v, attrs);
    for (kb::Value& y : out) y.b = &b_;
    return out;
  }
  void floats(const kb::Values& v) {
    for (const kb::Value& y : v)
      if (y.type().dtype >= KB_BF16) outputs.push_back(y), graph->output("out." + std::to_string(y.id), y.id);
  }
  void objective() {
    kb::Values v{in("h", KB_COMPUTE, {rows, width}), in("head", KB_COMPUTE, {vocab, width}, false)};
    uint32_t n = 0;
    const kb_column* c =
        static_cast<const kb_objective*>(bench_.instance->table->service)->columns(bench_.instance->self, &n);
    for (uint32_t i = 0; i < n; ++i) v.push_back(in(c[i].name, c[i].dtype, {rows}));
    floats(call(0, v));
  }
  void optimizer() {
    for (const int64_t role : {int64_t(KB_MATRIX), int64_t(KB_VECTOR), int64_t(KB_EMBEDDING)}) {
      const std::vector<int64_t> shape =
          role == KB_VECTOR ? std::vector<int64_t>{width} : std::vector<int64_t>{width, 6};
      const std::string n = std::to_string(role);
      const kb::Values v{in("w" + n, KB_WIDE, shape), in("g" + n, KB_WIDE, shape), in("lr" + n, KB_WIDE, {}),
                         in("step" + n, KB_WIDE, {})};
      kb::Values out = graph->build(
          *bench_.instance, "opt." + n, 0, v,
          {{"role", role}, {"blocks", int64_t(role == KB_MATRIX ? 2 : 1)}, {"flags", int64_t(0)}, {"name", n.c_str()}});
      for (kb::Value& y : out) y.b = &b_;
      floats(out);
      if (!same_shape(out.at(0).type(), v[0].type()) || out[0].type().dtype != v[0].type().dtype)
        kb::fail("the new parameter is ", type_text(out[0].type()), " but the old one ", type_text(v[0].type()));
    }
  }
  void residual() {
    kb::Values carry = call(0, {x()});
    constexpr int64_t count = 6;
    for (int64_t i = 0; i < count; ++i) {
      const char* role = i % 2 ? "ffn" : "attn";
      const std::string layer = "layers." + std::to_string(i / 2);
      kb::Values entered =
          graph->build(*bench_.instance, layer, 1, carry, {{"index", i}, {"count", count}, {"role", role}});
      carry.assign(entered.begin() + 1, entered.end());
      carry.push_back(b_.emit("tanh", {entered[0]}));  // a sub-layer
      carry = graph->build(*bench_.instance, layer, 2, carry, {{"index", i}, {"count", count}, {"role", role}});
    }
    floats(call(3, carry, {{"count", count}}));
  }
  void router() {
    const kb::Values out = call(0, {x(), document()}, {{"experts", int64_t(6)}, {"active", int64_t(2)}});
    if (out.at(0).type().dtype != KB_I32) kb::fail("ids are ", type_text(out[0].type()), " but must be i32");
    floats(out);
  }

  Bench& bench_;

 public:
  std::unique_ptr<Graph> graph;
  kb::Values outputs;
  std::vector<std::string> without;  // names that have no gradient

 private:
  kb::Builder b_;
};

}  // namespace kitbash::test
