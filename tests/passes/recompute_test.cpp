// Recompute: what is cloned, what is kept, where clones run, and what it saves.
#include "tests/passes/fixture.h"

namespace kitbash {
namespace {

using test::Bench;
using test::count;
using test::input;

// `layers` segments x -> tanh(x w) + x, each with its own weight; loss = sum.
struct Chain {
  Bench bench;
  std::unique_ptr<Graph> g = bench.graph();
  kb::Builder b = g->builder();
  ValueId loss = 0;

  explicit Chain(int layers) {
    kb::Value x = input(*g, b, "x", {64, 32});
    std::vector<ValueId> want;
    for (int l = 0; l < layers; ++l) {
      const kb::Value w = input(*g, b, "w" + std::to_string(l), {32, 32});
      want.push_back(w.id);
      Graph::Scope scope(*g, "layers." + std::to_string(l), Phase::forward, l);
      const kb::Value h = b.tanh(b.linear(b.exp(x), w));
      x = b.linear(b.sigmoid(h), w) + x;
    }
    loss = b.sum(b.reshape(x, {-1}), 0).id;
    int i = 0;
    for (const auto& [v, d] : differentiate(*g, loss, want)) g->output("d" + std::to_string(i++), d);
  }
};

TEST(Recompute, leaves_a_graph_without_segments_as_it_is) {
  Bench bench;
  auto g = bench.graph();
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {4});
  differentiate(*g, b.sum(b.tanh(b.exp(x)), 0).id, {x.id});
  const size_t nodes = g->nodes.size();
  EXPECT_EQ(recompute_segments(*g), 0);
  EXPECT_EQ(g->nodes.size(), nodes);
}

TEST(Recompute, makes_backward_read_clones_of_its_segment_and_borders_as_they_are) {
  Chain c(3);
  EXPECT_GT(recompute_segments(*c.g), 0);
  for (const Node& n : c.g->nodes) {
    if (n.phase != Phase::backward) continue;
    for (ValueId v : n.in) {
      const Node& m = c.g->maker(v);
      if (m.kind != NodeKind::op || m.phase != Phase::forward) continue;
      // Only a value that the next segment reads too may still be the forward one.
      bool border = false;
      for (const Node& r : c.g->nodes)
        border |=
            r.phase == Phase::forward && r.segment != m.segment && std::find(r.in.begin(), r.in.end(), v) != r.in.end();
      EXPECT_TRUE(border) << c.g->describe(n) << " reads " << c.g->describe(m);
    }
  }
}

TEST(Recompute, repeats_a_node_once) {
  Chain c(3);
  recompute_segments(*c.g);
  std::vector<NodeId> repeated;
  for (const Node& n : c.g->nodes)
    if (n.phase == Phase::recompute) repeated.push_back(n.clone_of);
  std::sort(repeated.begin(), repeated.end());
  EXPECT_EQ(std::adjacent_find(repeated.begin(), repeated.end()), repeated.end());
  for (NodeId id : repeated) EXPECT_EQ(c.g->nodes[id].phase, Phase::forward);
}

TEST(Recompute, runs_clones_just_before_their_first_consumer) {
  Chain c(4);
  recompute_segments(*c.g);
  const std::vector<NodeId> order = schedule(*c.g);
  size_t last_forward = 0;
  for (size_t p = 0; p < order.size(); ++p)
    if (c.g->nodes[order[p]].phase == Phase::forward && c.g->nodes[order[p]].kind == NodeKind::op) last_forward = p;
  for (size_t p = 0; p < order.size(); ++p) {
    const Node& n = c.g->nodes[order[p]];
    if (n.phase != Phase::recompute) continue;
    EXPECT_GT(p, last_forward) << "a clone in the forward pass saves nothing";
    size_t reader = p + 1;
    while (reader < order.size()) {
      const Node& r = c.g->nodes[order[reader]];
      if (std::any_of(r.in.begin(), r.in.end(), [&](ValueId v) { return v && c.g->values[v].maker == order[p]; }))
        break;
      ++reader;
    }
    ASSERT_LT(reader, order.size()) << "a clone that nobody reads";
    for (size_t q = p + 1; q < reader; ++q)  // between them: other clones, for the same consumer
      EXPECT_EQ(c.g->nodes[order[q]].phase, Phase::recompute) << c.g->describe(c.g->nodes[order[q]]);
  }
}

TEST(Recompute, lowers_the_peak_of_a_deep_chain_at_least_threefold) {
  Chain plain(64), repeated(64);
  recompute_segments(*repeated.g);
  const auto bytes = [](Graph& g) { return plan_memory(g, schedule(g), test::no_workspace).arena_bytes; };
  // Inputs are feeds and lie in the arena too; they are the same in both.
  const int64_t feeds = plan_memory(*plain.g, schedule(*plain.g), test::no_workspace).feed_bytes;
  int64_t gradients = 0;  // outputs stay to the end in both
  for (const auto& [name, v] : plain.g->outputs) gradients += type_bytes(plain.g->type(v));
  EXPECT_GE(bytes(*plain.g) - feeds - gradients, 3 * (bytes(*repeated.g) - feeds - gradients));
}

TEST(Recompute, saves_integers_instead_of_computing_them_again) {
  Bench bench;
  auto g = bench.graph();
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {6, 8});
  kb::Value loss;
  {
    Graph::Scope scope(*g, "router", Phase::forward, 0);
    const kb::Value score = b.sigmoid(x);
    loss = b.sum(b.reshape(b.exp(b.take(score, b.topk(score, 2)[1])), {-1}), 0);
  }
  g->output("dx", differentiate(*g, loss.id, {x.id}).at(x.id));
  recompute_segments(*g);
  EXPECT_EQ(count(*g, "topk", Phase::recompute), 0);
  EXPECT_EQ(count(*g, "sigmoid", Phase::recompute), 1);
  for (const Node& n : g->nodes)
    if (n.is("untake") || n.is("take")) {
      EXPECT_EQ(g->maker(n.in[1]).phase, Phase::forward) << "ids come from the forward pass";
    }
}

TEST(Recompute, does_not_double_state_writes) {
  Bench bench;
  auto g = bench.graph();
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {6, 8});
  kb::Value loss;
  {
    Graph::Scope scope(*g, "router", Phase::forward, 0);
    const kb::Value load{&b, bench.stored(*g, "load", {8}, Life::step)};
    const kb::Value score = b.sigmoid(x);
    const kb::Value now = load + b.sum(score, 0);
    g->write(load.id, now.id);
    loss = b.sum(b.reshape(b.exp(score), {-1}), 0);
  }
  g->output("dx", differentiate(*g, loss.id, {x.id}).at(x.id));
  ASSERT_EQ(g->writes.size(), 1u);
  const ValueId before = g->writes[0].value;
  EXPECT_GT(recompute_segments(*g), 0);
  ASSERT_EQ(g->writes.size(), 1u);
  EXPECT_EQ(g->writes[0].value, before);
  for (const Node& n : g->nodes)  // nothing that leads to the state is repeated
    if (n.phase == Phase::recompute) {
      EXPECT_TRUE(n.is("sigmoid") || n.is("exp")) << g->describe(n);
    }
}

}  // namespace
}  // namespace kitbash
