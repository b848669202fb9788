// The arena: no value is lost whatever the graph, and when bytes are shared, taken over or copied.
#include "tests/passes/random_graph.h"
#include "tests/passes/simulate.h"

namespace kitbash {
namespace {

using test::Bench;
using test::input;
using test::no_workspace;
using test::RandomGraph;
using test::Simulation;

bool products(const Node& n, uint32_t) { return n.is("matmul"); }
int64_t some_workspace(const Node& n) { return n.is("matmul") ? 1000 : n.is("mul") ? 64 : 0; }

std::string simulate(Graph& g) {
  fold_adds(g, products);
  const MemoryPlan plan = plan_memory(g, schedule(g), some_workspace);
  return Simulation(g, plan).run(some_workspace);
}

TEST(Arena, loses_no_value_of_any_graph) {
  for (uint32_t seed = 0; seed < 400; ++seed) {
    RandomGraph r(seed);
    r.anything(4 + int(seed % 40));
    ASSERT_EQ(simulate(*r.g), "") << "seed " << seed;
  }
}

TEST(Arena, loses_no_value_of_any_training_graph) {
  for (uint32_t seed = 0; seed < 100; ++seed)
    for (bool segments : {false, true}) {
      RandomGraph r(seed);
      r.training(1 + int(seed % 5), segments);
      ASSERT_EQ(simulate(*r.g), "") << "seed " << seed << (segments ? " with recompute" : "");
    }
}

struct Plan : ::testing::Test {
  Bench bench;
  std::unique_ptr<Graph> g = bench.graph();
  kb::Builder b = g->builder();
  kb::Value x = input(*g, b, "x", {8, 16});
  MemoryPlan plan;
  void make() {
    plan = plan_memory(*g, schedule(*g), no_workspace);
    EXPECT_EQ(Simulation(*g, plan).run(no_workspace), "");
  }
  int32_t buffer(kb::Value v) const { return plan.buffer_of[v.id]; }
  const Buffer& home(kb::Value v) const { return plan.buffers[size_t(buffer(v))]; }
};

TEST_F(Plan, gives_a_pointwise_result_the_bytes_of_an_operand_that_dies) {
  const kb::Value y = b.exp(x), z = b.tanh(y), last = b.sigmoid(z);
  g->output("out", last.id);
  make();
  EXPECT_NE(buffer(y), buffer(x)) << "a feed is not changed";
  EXPECT_EQ(buffer(z), buffer(y));
  EXPECT_EQ(buffer(last), buffer(z));
  EXPECT_EQ(plan.arena_bytes, 2 * 8 * 16 * 4);
}

TEST_F(Plan, keeps_an_operand_that_is_read_later) {
  const kb::Value y = b.exp(x), z = b.tanh(y), last = y * z;
  g->output("out", last.id);
  make();
  EXPECT_NE(buffer(z), buffer(y));
}

TEST_F(Plan, gives_no_product_the_bytes_of_its_operand) {
  const kb::Value w = input(*g, b, "w", {16, 16}), y = b.exp(x), z = b.linear(y, w);
  g->output("out", z.id);
  make();
  EXPECT_NE(buffer(z), buffer(y));
}

TEST_F(Plan, gives_views_the_bytes_of_what_they_show_for_as_long_as_they_are_read) {
  const kb::Value y = b.exp(x), view = b.reshape(y, {16, 8}), other = b.tanh(b.sigmoid(x));
  g->output("out", (b.reshape(other, {16, 8}) + view).id);
  make();
  EXPECT_EQ(buffer(view), buffer(y));
  EXPECT_NE(buffer(other), buffer(y));
}

TEST_F(Plan, keeps_nothing_of_an_output_that_nobody_reads) {
  const kb::Value w = input(*g, b, "w", {16}), dy = b.exp(x);
  const kb::Values d = b.emit_n("rms_norm_backward", {x, w, dy}, {{"eps", 1e-5}});
  g->output("dw", d[1].id);
  make();
  EXPECT_EQ(buffer(d[0]), -1);
  EXPECT_GE(buffer(d[1]), 0);
}

TEST_F(Plan, changes_a_stored_value_in_place_when_nobody_reads_the_old_one_later) {
  const kb::Value old{&b, bench.stored(*g, "sum", {8, 16})}, now = old + b.exp(x);
  g->write(old.id, now.id);
  make();
  EXPECT_EQ(home(now).home, Buffer::Home::store);
  EXPECT_EQ(home(now).entry, "sum");
  EXPECT_TRUE(plan.copies_out.empty());
}

TEST_F(Plan, copies_to_the_store_after_the_last_reader_of_the_old_value) {
  const kb::Value old{&b, bench.stored(*g, "sum", {8, 16})}, now = old + b.exp(x), later = b.tanh(old);
  g->write(old.id, now.id);
  g->output("later", later.id);
  make();
  EXPECT_NE(home(now).home, Buffer::Home::store);
  ASSERT_EQ(plan.copies_out.size(), 1u);
  EXPECT_GE(plan.copies_out[0].position, int32_t(test::position(plan.order, g->values[later.id].maker)));
}

TEST_F(Plan, makes_a_value_in_the_store_when_nobody_reads_the_old_one) {
  const kb::Value w{&b, bench.stored(*g, "w", {8, 16})}, y = b.matmul(x, b.permute(x, {1, 0}));
  const kb::Value z = b.matmul(y, x);
  g->write(w.id, z.id);
  g->output("out", b.exp(z).id);
  make();
  EXPECT_EQ(home(z).home, Buffer::Home::store);
  EXPECT_EQ(home(z).entry, "w");
  EXPECT_TRUE(plan.copies_out.empty());
}

// The copy to the store is what the program refuses, or does, with step_ok known.
TEST_F(Plan, makes_nothing_in_the_store_before_step_ok_is_decided) {
  const kb::Value w{&b, bench.stored(*g, "w", {8, 8})}, v{&b, bench.stored(*g, "v", {8, 8})};
  const kb::Value early = b.matmul(x, b.permute(x, {1, 0})), ok = b.is_finite(b.square_sum(early)),
                  late = b.matmul(early, early);
  g->output("step_ok", ok.id);
  g->write(w.id, early.id);
  g->write(v.id, late.id);
  make();
  EXPECT_EQ(home(early).home, Buffer::Home::arena);
  EXPECT_EQ(plan.copies_out.size(), 1u);
  EXPECT_EQ(home(late).entry, "v");
}

TEST_F(Plan, leaves_a_stored_value_alone_that_is_not_written) {
  const kb::Value old{&b, bench.stored(*g, "weight", {8, 16})}, now = b.exp(old);
  g->output("out", now.id);
  make();
  EXPECT_EQ(home(old).home, Buffer::Home::store);
  EXPECT_EQ(home(now).home, Buffer::Home::arena);
}

TEST_F(Plan, writes_no_stored_value_into_another) {
  const kb::Value a{&b, bench.stored(*g, "a", {8, 16})}, c{&b, bench.stored(*g, "c", {8, 16})};
  const kb::Value now = b.exp(a);
  g->write(c.id, now.id);
  make();
  EXPECT_NE(home(now).entry, "a");
}

TEST_F(Plan, moves_one_stored_value_to_another_before_that_one_changes) {  // previous <- current, current <- new
  const kb::Value previous{&b, bench.stored(*g, "previous", {8, 16})},
      current{&b, bench.stored(*g, "current", {8, 16})};
  const kb::Value now = current + b.exp(x), late = b.tanh(previous * now);
  g->write(previous.id, current.id);
  g->write(current.id, now.id);
  g->output("late", late.id);
  make();
}

TEST_F(Plan, swaps_two_stored_values) {
  const kb::Value a{&b, bench.stored(*g, "a", {8, 16})}, c{&b, bench.stored(*g, "c", {8, 16})};
  g->write(a.id, c.id);
  g->write(c.id, a.id);
  make();
}

struct InPlace : Plan {
  InPlace() { bench.registry.add_base_op(kb::op_table<test::Bump>()); }
};

TEST_F(InPlace, takes_the_bytes_of_its_operand_when_that_dies) {
  const kb::Value y = b.exp(x), z = b.emit("test_bump", {y});
  g->output("out", z.id);
  make();
  EXPECT_EQ(buffer(z), buffer(y));
  EXPECT_TRUE(plan.copies_in.empty());
}

TEST_F(InPlace, gets_a_copy_of_an_operand_that_is_read_later) {
  const kb::Value y = b.exp(x), z = b.emit("test_bump", {y}), last = y * z;
  g->output("out", last.id);
  make();
  ASSERT_EQ(plan.copies_in.size(), 1u);
  EXPECT_EQ(plan.copies_in[0].from, y.id);
}

TEST_F(InPlace, gets_a_copy_of_a_fed_input) {
  const kb::Value z = b.emit("test_bump", {x});
  g->output("out", z.id);
  make();
  EXPECT_EQ(plan.copies_in.size(), 1u);
}

TEST_F(InPlace, changes_the_store_itself_when_its_result_is_what_is_stored) {
  const kb::Value old{&b, bench.stored(*g, "cache", {8, 16})}, now = b.emit("test_bump", {old});
  g->write(old.id, now.id);
  make();
  EXPECT_EQ(home(now).home, Buffer::Home::store);
  EXPECT_TRUE(plan.copies_in.empty());
  EXPECT_TRUE(plan.copies_out.empty());
}

TEST_F(InPlace, never_changes_a_stored_value_that_is_not_written) {
  const kb::Value old{&b, bench.stored(*g, "cache", {8, 16})}, now = b.emit("test_bump", {old});
  g->output("out", now.id);
  make();
  EXPECT_EQ(home(now).home, Buffer::Home::arena);
  EXPECT_EQ(plan.copies_in.size(), 1u);
}

TEST_F(Plan, gives_workspaces_bytes_that_only_their_node_uses) {
  const kb::Value w = input(*g, b, "w", {16, 16});
  g->output("out", b.linear(b.linear(b.exp(x), w), w).id);
  plan = plan_memory(*g, schedule(*g), some_workspace);
  EXPECT_EQ(Simulation(*g, plan).run(some_workspace), "");
  EXPECT_EQ(plan.peak_workspace, 1000);
}

}  // namespace
}  // namespace kitbash
