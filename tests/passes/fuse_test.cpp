// Fusion changes no result, whatever the graph, and makes the groups that it is for.
#include "kitbash/fused.h"
#include "tests/passes/random_graph.h"
#include "tests/passes/simulate.h"

namespace kitbash {
namespace {

using test::Bench;
using test::input;
using test::no_workspace;
using test::RandomGraph;
using test::Simulation;

using Numbers = std::vector<double>;

double one_step(const std::string& op, double a, double b, double mul, double add) {
  if (op == "affine") return mul * a + add;
  if (op == "exp") return std::exp(a);
  if (op == "sigmoid") return 1 / (1 + std::exp(-a));
  if (op == "tanh") return std::tanh(a);
  if (op == "rsqrt") return 1 / std::sqrt(a);
  if (op == "cast" || op == "detach") return a;
  if (op == "add") return a + b;
  if (op == "sub") return a - b;
  if (op == "mul") return a * b;
  if (op == "div") return a / b;
  if (op == "maximum") return a > b ? a : b;
  if (op == "less") return a < b;
  if (op == "fill") return add;
  throw std::runtime_error(op + " is not simulated");
}

// Values of a program. Ops that may be fused, and moves around them, are computed; any other op is some function of its
// operands.
class Evaluator {
 public:
  explicit Evaluator(const Graph& g) : g_(g), at_(g.values.size()) {}
  void run(const std::vector<NodeId>& order) {
    for (bool first : {true, false})  // feeds and stored values exist before anything runs
      for (NodeId id : order)
        if ((g_.nodes[id].kind != NodeKind::op) == first) step(g_.nodes[id]);
  }
  const Numbers& operator[](ValueId v) const { return at_[v]; }
  bool has(ValueId v) const { return !at_[v].empty(); }

 private:
  static double attr(const Node& n, const char* name) {
    for (uint32_t i = 0; i < n.n_attr; ++i)
      if (std::string(n.attr[i].name) == name) return n.attr[i].kind == KB_INT ? double(n.attr[i].v.i) : n.attr[i].v.f;
    return 0;
  }
  bool last_axis(const Node& n) const {
    const kb_type &x = g_.type(n.in[0]), &y = g_.type(n.out[0]);
    return x.rank == y.rank && kb::elements(y) * x.shape[x.rank - 1] == kb::elements(x) && y.shape[y.rank - 1] == 1;
  }
  Numbers broadcast(ValueId v, const kb_type& out) const {
    const kb_type& t = g_.type(v);
    Numbers r(size_t(kb::elements(out)));
    for (size_t i = 0; i < r.size(); ++i) {
      size_t rest = i, from = 0, step = 1;
      for (int d = 0; d < out.rank; ++d) {
        const auto n = size_t(out.shape[out.rank - 1 - d]);
        const auto m = size_t(d < t.rank ? t.shape[t.rank - 1 - d] : 1);
        from += (m > 1 ? rest % n : 0) * step;
        step *= m, rest /= n;
      }
      r[i] = at_[v].at(from);
    }
    return r;
  }
  void step(const Node& n) {
    for (const auto* list : {&n.in, &n.base})
      for (ValueId v : *list)
        if (v && at_[v].empty()) throw std::runtime_error(g_.describe(n) + " reads a value that nobody made before it");
    const kb_type& out = g_.type(n.out[0]);
    const auto size = size_t(kb::elements(out));
    if (n.is("fused")) {
      fused(n);
    } else if (n.traits() & KB_VIEW) {
      at_[n.out[0]] = at_[n.in[0]];
    } else if (n.is("broadcast")) {
      at_[n.out[0]] = broadcast(n.in[0], out);
    } else if (n.base.empty() && ((n.is("sum") && attr(n, "axis") == -1) || (n.is("sum_to") && last_axis(n)))) {
      const Numbers& x = at_[n.in[0]];
      at_[n.out[0]].assign(size, 0);
      for (size_t i = 0; i < x.size(); ++i) at_[n.out[0]][i / (x.size() / size)] += x[i];
    } else if (n.is("fill")) {
      at_[n.out[0]].assign(size, attr(n, "value"));
    } else if (n.kind == NodeKind::op && n.base.empty() && n.alias.empty() && kb::fused_step(n.op->name) >= 0) {
      const Numbers a = broadcast(n.in[0], out), b = n.in.size() > 1 ? broadcast(n.in[1], out) : a;
      Numbers& y = at_[n.out[0]];
      for (size_t i = 0; i < size; ++i) y.push_back(one_step(n.op->name, a[i], b[i], attr(n, "mul"), attr(n, "add")));
    } else {
      double sum = double(n.name.size()) + (n.op ? double(n.op->name.size()) : 0);
      for (const auto* list : {&n.in, &n.base})
        for (ValueId v : *list)
          if (v)
            for (size_t i = 0; i < at_[v].size(); ++i) sum += at_[v][i] * std::cos(double(i));
      for (size_t o = 0; o < n.out.size(); ++o)
        for (int64_t i = 0; i < kb::elements(g_.type(n.out[o])); ++i)
          at_[n.out[o]].push_back(std::sin(sum + double(i) * 0.37 + double(o) + double(n.out[0] % 7)));
    }
  }
  void fused(const Node& n) {
    const auto p = kb::FusedProgram::from({n.attr[0].v.fs, n.attr[0].count});
    ASSERT_EQ(p.stride.size(), n.in.size());
    ASSERT_EQ(p.out.size(), n.out.size());
    const auto size = size_t(p.elements), width = p.sums_rows() ? size_t(p.inner.back()) : 1;
    std::vector<Numbers> value;  // by value and element; those of a row repeat
    for (size_t k = 0; k < n.in.size(); ++k) {
      value.emplace_back();
      for (size_t i = 0; i < size; ++i) {
        size_t rest = i, from = 0;
        for (size_t a = p.inner.size(); a-- > 0;)
          from += rest % size_t(p.inner[a]) * size_t(p.stride[k][a + 1]), rest /= size_t(p.inner[a]);
        value.back().push_back(at_[n.in[k]].at(from + rest * size_t(p.stride[k][0])));
      }
    }
    for (const kb::FusedStep& s : p.steps) {
      Numbers y(size);
      const std::string op = kb::fused_steps[s.op];
      for (size_t i = 0; i < size; ++i)
        if (op == "sum_row")
          for (size_t k = i / width * width; k < i / width * width + width; ++k) y[i] += value.at(size_t(s.a))[k];
        else
          y[i] = one_step(op, s.a < 0 ? 0 : value.at(size_t(s.a))[i], s.b < 0 ? 0 : value.at(size_t(s.b))[i], s.mul,
                          s.add);
      value.push_back(y);
    }
    for (size_t o = 0; o < n.out.size(); ++o) {
      const Numbers& y = value.at(size_t(p.out[o]));
      const auto mine = size_t(kb::elements(g_.type(n.out[o])));
      ASSERT_EQ(mine * (p.row_out[o] ? width : 1), size);
      at_[n.out[o]].clear();
      for (size_t i = 0; i < mine; ++i) at_[n.out[o]].push_back(y[i * (size / mine)]);
    }
  }

  const Graph& g_;
  std::vector<Numbers> at_;
};

// "" if fusion keeps every result and the memory plan of the fused program loses none.
std::string broken(Graph& g, size_t* groups = nullptr) {
  fold_adds(g, [](const Node& n, uint32_t) { return n.is("matmul"); });
  const std::vector<NodeId> order = schedule(g);
  Evaluator plain(g);
  plain.run(order);
  const std::vector<NodeId> fused = fuse(g, order);
  Evaluator now(g);
  try {
    now.run(fused);
  } catch (const std::exception& e) {
    return e.what();
  }
  std::vector<ValueId> results;
  for (const auto& [name, v] : g.outputs) results.push_back(v);
  for (const Write& w : g.writes) results.push_back(w.value);
  for (ValueId v : results) {
    if (!now.has(v)) return "a result is not made";
    for (size_t i = 0; i < plain[v].size(); ++i)
      if (!(plain[v][i] == now[v][i]) && !(std::isnan(plain[v][i]) && std::isnan(now[v][i])))
        return kb::text("value ", v, " element ", i, " is ", now[v][i], " and was ", plain[v][i]);
  }
  if (groups)
    for (NodeId id : fused) *groups += g.nodes[id].is("fused");
  const MemoryPlan plan = plan_memory(g, fused, no_workspace);
  return Simulation(g, plan).run(no_workspace);
}

TEST(Fuse, changes_no_result_of_any_graph) {
  size_t groups = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    RandomGraph r(seed);
    r.anything(4 + int(seed % 60));
    ASSERT_EQ(broken(*r.g, &groups), "") << "seed " << seed;
  }
  EXPECT_GT(groups, 300u);
}

TEST(Fuse, changes_no_result_of_any_training_graph) {
  size_t groups = 0;
  for (uint32_t seed = 0; seed < 60; ++seed)
    for (bool segments : {false, true}) {
      RandomGraph r(seed);
      r.training(3, segments);
      ASSERT_EQ(broken(*r.g, &groups), "") << "seed " << seed << " segments " << segments;
    }
  EXPECT_GT(groups, 60u);
}

// Pointwise ops over reshapes, broadcasts and constants of many forms.
TEST(Fuse, changes_no_result_of_broadcasts_and_reshapes) {
  size_t groups = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
    Bench bench;
    auto g = bench.graph();
    kb::Builder b = g->builder();
    const std::vector<std::vector<int64_t>> small{{4, 6}, {4, 1}, {6}, {5, 1, 1}, {1, 4, 1}, {}, {5, 1, 6}, {1}};
    kb::Values operands, flat;
    for (size_t i = 0; i < small.size(); ++i) operands.push_back(input(*g, b, "s" + std::to_string(i), small[i]));
    for (const std::vector<int64_t>& s : {std::vector<int64_t>{24}, {5, 1}, {1, 1}})
      flat.push_back(input(*g, b, "f" + std::to_string(flat.size()), s));
    kb::Values pool{input(*g, b, "x", {5, 4, 6}), input(*g, b, "y", {5, 4, 6})};
    for (size_t k = 0; k < 5 + seed % 20; ++k) {
      const kb::Value a = pool[below(pool.size())], c = pool[below(pool.size())];
      switch (below(11)) {
        case 9:
          pool.push_back(a * b.sum(a * c, -1, true));
          break;
        case 10:
          pool.push_back(a - b.reshape(b.sigmoid(b.sum(b.reshape(a, {20, 6}), -1, false)), {5, 4, 1}) * operands[1]);
          break;
        case 0:
          pool.push_back(b.sigmoid(a));
          break;
        case 1:
          pool.push_back(a * c);
          break;
        case 2:
        case 3:
          pool.push_back(a + operands[below(operands.size())]);
          break;
        case 4:
          pool.push_back(b.reshape(b.reshape(a, {5, 24}) * flat[below(flat.size())], {5, 4, 6}));
          break;
        case 5:
          pool.push_back(b.maximum(a, b.fill({5, 4, 6}, 0.25)));
          break;
        case 6:
          pool.push_back(a - b.broadcast(operands[below(operands.size())], {5, 4, 6}));
          break;
        case 7:
          pool.push_back(b.softmax(a));
          break;
        default:
          pool.push_back(1.5 * a - c);
          break;
      }
    }
    for (size_t i = 2; i < pool.size(); ++i)
      if (i + 1 == pool.size() || !below(4)) g->output("o" + std::to_string(i), pool[i].id);
    ASSERT_EQ(broken(*g, &groups), "") << "seed " << seed;
  }
  EXPECT_GT(groups, 300u);
}

int64_t fused_nodes(const Graph& g, const std::vector<NodeId>& order) {
  return std::count_if(order.begin(), order.end(), [&](NodeId id) { return g.nodes[id].is("fused"); });
}

TEST(Fuse, makes_one_node_of_a_gated_unit_and_one_of_its_gradient) {
  Bench bench;
  auto g = bench.graph();
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {32, 64}), w = input(*g, b, "w", {64, 64}), v = input(*g, b, "v", {64, 64});
  kb::Value y;
  {
    Graph::Scope scope(*g, "ffn", Phase::forward, 0);
    const kb::Value gate = b.linear(x, w), up = b.linear(x, v);
    y = b.linear(gate * b.sigmoid(gate) * up, w);
  }
  const kb::Value loss = b.sum(b.reshape(y, {-1}), 0);
  g->output("loss", loss.id);
  const auto d = differentiate(*g, loss.id, {w.id, v.id});
  for (const auto& [value, gradient] : d) g->output("d" + std::to_string(value), gradient);
  recompute_segments(*g);
  const std::vector<NodeId> order = fuse(*g, schedule(*g));
  EXPECT_EQ(fused_nodes(*g, order), 2);  // forward; what is computed again, with the backward
  for (NodeId id : order) {
    const Node& n = g->nodes[id];
    if (n.is("fused")) {
      EXPECT_EQ(n.out.size(), n.phase == Phase::backward ? 3u : 1u) << g->describe(n);  // y, dgate, dup
      EXPECT_EQ(n.in.size(), n.phase == Phase::backward ? 3u : 2u) << g->describe(n);   // dy, gate, up
    }
    EXPECT_FALSE(n.is("mul") || n.is("sigmoid")) << g->describe(n);
  }
}

TEST(Fuse, makes_one_node_of_a_norm_and_few_of_its_gradient) {
  Bench bench;
  auto g = bench.graph();
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {32, 8, 16}), up = input(*g, b, "up", {32, 8, 16});
  const kb::Value y = x * b.emit("rsqrt", {b.sum(x * x, -1, true) + 1e-6});
  const kb::Value loss = b.sum(b.reshape(y * up, {-1}), 0);
  g->output("y", y.id), g->output("loss", loss.id);
  const auto d = differentiate(*g, loss.id, {x.id});
  g->output("dx", d.at(x.id));
  const std::vector<NodeId> order = fuse(*g, schedule(*g));
  EXPECT_LE(fused_nodes(*g, order), 4);
}

TEST(Fuse, changes_no_result_of_a_single_row) {
  Bench bench;
  auto g = bench.graph();
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {1, 8});
  g->output("y", (x / (b.sum(x, -1, true) + 1e-20)).id);
  EXPECT_EQ(broken(*g), "");
}

TEST(Fuse, leaves_a_lone_node_as_it_is) {
  Bench bench;
  auto g = bench.graph();
  kb::Builder b = g->builder();
  g->output("y", b.softmax(b.exp(input(*g, b, "x", {4, 8}))).id);
  EXPECT_EQ(fused_nodes(*g, fuse(*g, schedule(*g))), 0);
}

TEST(Fuse, keeps_every_result_of_a_group_of_too_many_results) {
  Bench bench;
  auto g = bench.graph();
  kb::Builder b = g->builder();
  kb::Value x = input(*g, b, "x", {4, 8});
  for (int i = 0; i < 30; ++i) {
    x = b.tanh(x) + 0.5;
    g->output("o" + std::to_string(i), x.id);
  }
  EXPECT_EQ(broken(*g), "");
}

TEST(Fuse, keeps_rows_of_different_extents_apart) {
  Bench bench;
  auto g = bench.graph();
  kb::Builder b = g->builder();
  kb_type t = make_type(KB_F32, {8, 4});
  t.extent = g->extent("rows");
  const kb::Value x{&b, g->input("x", t)}, y = input(*g, b, "y", {8, 4});
  const kb::Value a = b.exp(x) * 2.0, c = b.exp(y) * 2.0;
  g->output("a", a.id), g->output("c", c.id);
  const std::vector<NodeId> order = fuse(*g, schedule(*g));
  EXPECT_EQ(fused_nodes(*g, order), 2);
}

TEST(Fuse, reaches_not_across_the_barrier) {
  Bench bench;
  auto g = bench.graph(KB_STEP);
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {4, 4}), e = b.exp(x), ok = b.is_finite(b.sum(b.sum(e, 1), 0));
  const kb::Value y = 2.0 * b.tanh(e);
  g->output("step_ok", ok.id), g->output("y", y.id);
  const std::vector<NodeId> order = fuse(*g, schedule(*g, ok.id), ok.id);
  EXPECT_LT(test::position(order, g->values[ok.id].maker), test::position(order, g->values[y.id].maker));
  EXPECT_EQ(fused_nodes(*g, order), 2);
}

TEST(Fuse, program_survives_its_flat_form) {
  kb::FusedProgram p;
  p.elements = 48, p.inner = {4, 6}, p.stride = {{24, 6, 1}, {0, 6, 1}};
  p.steps = {{kb::fused_step("affine"), KB_BF16, 0, -1, 1.5, -0.1}, {kb::fused_step("mul"), KB_F32, 2, 1, 1, 0}};
  p.out = {3};
  const std::vector<double> f = p.flat();
  EXPECT_EQ(kb::FusedProgram::from({f.data(), uint32_t(f.size())}).flat(), f);
  EXPECT_THROW(kb::FusedProgram::from({f.data(), uint32_t(f.size() - 1)}), kb::Error);
}

}  // namespace
}  // namespace kitbash
