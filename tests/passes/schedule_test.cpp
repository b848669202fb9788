// The order of nodes: stable, only what is needed, and what decides comes first.
#include "tests/passes/fixture.h"

namespace kitbash {
namespace {

using test::Bench;
using test::input;
using test::position;

TEST(Schedule, keeps_the_order_of_building) {
  Bench bench;
  auto g = bench.graph();
  kb::Builder b = g->builder();
  kb::Value x = input(*g, b, "x", {4});
  for (int i = 0; i < 20; ++i) x = i % 3 ? b.exp(x) : x + b.tanh(x);
  g->output("out", x.id);
  const std::vector<NodeId> order = schedule(*g);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(order.size(), g->nodes.size());
  EXPECT_EQ(order, schedule(*g));
}

TEST(Schedule, leaves_out_what_nobody_reads) {
  Bench bench;
  auto g = bench.graph();
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {4}), unused = input(*g, b, "unused", {4});
  b.exp(unused);
  const kb::Value y = b.exp(x);
  b.tanh(y);
  g->output("out", y.id);
  const std::vector<NodeId> order = schedule(*g);
  EXPECT_EQ(order.size(), 2u);
}

TEST(Schedule, keeps_what_outputs_reports_and_writes_need) {
  Bench bench;
  auto g = bench.graph();
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {4});
  const kb::Value reported = b.exp(x), old{&b, bench.stored(*g, "sum", {4})}, now = old + b.tanh(x);
  g->reports["r"] = reported.id;
  g->write(old.id, now.id);
  const std::vector<NodeId> order = schedule(*g);
  EXPECT_EQ(order.size(), 5u);  // x, exp, read, tanh, add
}

TEST(Schedule, puts_everything_that_the_first_value_needs_before_all_else) {
  Bench bench;
  auto g = bench.graph();
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {4}), y = input(*g, b, "y", {4});
  const kb::Value early = b.tanh(y);  // built before, but not needed by the decision
  const kb::Value norm = b.square_sum(x), ok = b.is_finite(norm);
  g->output("step_ok", ok.id);
  g->output("out", b.exp(early).id);
  const std::vector<NodeId> order = schedule(*g, ok.id);
  const size_t decided = position(order, g->values[ok.id].maker);
  EXPECT_EQ(decided, 2u);  // x, square_sum, is_finite
  EXPECT_GT(position(order, g->values[early.id].maker), decided);
  EXPECT_EQ(order.size(), g->nodes.size());
}

TEST(Schedule, puts_a_clone_after_the_clones_that_it_reads) {
  Bench bench;
  auto g = bench.graph();
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {4});
  kb::Value loss;
  {
    Graph::Scope scope(*g, "layer", Phase::forward, 0);
    loss = b.sum(b.exp(b.tanh(b.exp(b.tanh(x)))), 0);
  }
  g->output("dx", differentiate(*g, loss.id, {x.id}).at(x.id));
  recompute_segments(*g);
  const std::vector<NodeId> order = schedule(*g);
  std::vector<char> done(g->values.size(), 0);
  for (NodeId id : order) {
    for (ValueId v : g->nodes[id].in) EXPECT_TRUE(!v || done[v]) << g->describe(g->nodes[id]);
    for (ValueId v : g->nodes[id].out) done[v] = 1;
  }
}

}  // namespace
}  // namespace kitbash
