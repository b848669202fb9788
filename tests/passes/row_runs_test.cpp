// Row runs: which neighbours run tile by tile, what ends a run, and where the values between them live.
#include "tests/passes/fixture.h"

namespace kitbash {
namespace {

using test::Bench;
using test::input;
using test::no_workspace;
using test::position;

struct RowRuns : ::testing::Test {
  Bench bench;
  std::unique_ptr<Graph> g = bench.graph();
  kb::Builder b = g->builder();
  kb::Value x = input(*g, b, "x", {512, 32});
  std::vector<NodeId> order;

  std::vector<RowRun> find(int32_t barrier = -1) {
    order = schedule(*g);
    return find_row_runs(
        *g, order, [](const Node&) { return true; }, barrier);
  }
  int32_t at(kb::Value v) const { return int32_t(position(order, g->values[v.id].maker)); }
};

TEST_F(RowRuns, join_neighbours_that_keep_to_their_row) {
  const kb::Value gain = input(*g, b, "gain", {32});
  const kb::Value a = b.exp(x), n = b.rms_norm(a, gain, 1e-5), s = b.softmax(n), m = b.sum(s, -1, true), y = s - m;
  g->output("y", y.id);
  const auto runs = find();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].rows, 512);
  EXPECT_EQ(runs[0].members, (std::vector<int32_t>{at(a), at(n), at(s), at(m), at(y)}));
}

TEST_F(RowRuns, keep_what_only_they_see_out_of_the_arena) {
  const kb::Value a = b.exp(x), m = b.sum(a, 1, true), c = b.tanh(x), n = b.sum(c, 1, true);
  g->output("m", m.id);
  g->output("n", n.id);
  g->output("c", c.id);
  auto runs = find();
  const MemoryPlan with = plan_memory(*g, order, no_workspace, runs);
  EXPECT_EQ(with.buffers[size_t(with.buffer_of[a.id])].home, Buffer::Home::tile);
  EXPECT_EQ(with.buffers[size_t(with.buffer_of[c.id])].home, Buffer::Home::arena) << "somebody else reads it";
  ASSERT_EQ(with.runs.size(), 1u);
  EXPECT_EQ(with.runs[0].row_bytes, 32 * 4) << "one value of 32 floats a row";
}

TEST_F(RowRuns, end_where_rows_meet) {
  const kb::Value w = input(*g, b, "w", {32, 32});
  const kb::Value a = b.exp(x), c = b.tanh(a), p = b.matmul(c, w), d = b.exp(p), y = b.tanh(d);
  const kb::Value column = b.sum(y, 0), e = b.exp(column), f = b.tanh(e);
  g->output("f", f.id);
  const auto runs = find();
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].members, (std::vector<int32_t>{at(a), at(c)}));
  EXPECT_EQ(runs[1].members, (std::vector<int32_t>{at(d), at(y)}));
  EXPECT_EQ(runs[2].members, (std::vector<int32_t>{at(e), at(f)})) << "rows of one element";
}

TEST_F(RowRuns, end_before_a_member_that_reads_another_whole) {
  // c is [512, 32]; as the right operand of a broadcast over a third axis every row would need all of it.
  const kb::Value a = b.exp(x), c = b.tanh(a);
  const kb::Value cube = input(*g, b, "cube", {64, 512, 32});
  const kb::Value sum = cube + c, y = b.exp(sum);
  g->output("y", y.id);
  const auto runs = find();
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].members, (std::vector<int32_t>{at(a), at(c)}));
  EXPECT_EQ(runs[1].members, (std::vector<int32_t>{at(sum), at(y)}));
}

TEST_F(RowRuns, end_where_the_number_of_rows_or_the_extent_changes) {
  const kb::Value used{&b, g->input("used", [] {
                         kb_type t = make_type(KB_F32, {512, 32});
                         t.extent = 1;
                         return t;
                       }())};
  const kb::Value wide = input(*g, b, "wide", {1024, 32});
  for (const kb::Value& v : {x, used, wide}) g->output("y" + std::to_string(v.id), b.tanh(b.exp(v)).id);
  const auto runs = find();
  ASSERT_EQ(runs.size(), 3u);
  for (const RowRun& r : runs) EXPECT_EQ(r.members.size(), 2u);
}

TEST_F(RowRuns, never_cross_what_decides_a_step) {
  const kb::Value a = b.exp(x), c = b.tanh(a), d = b.exp(c), y = b.tanh(d);
  g->output("y", y.id);
  find();
  const auto runs = find(at(c));
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].last, at(c));
  EXPECT_EQ(runs[1].first, at(d));
}

TEST_F(RowRuns, step_over_small_nodes_that_need_nothing_of_them) {
  const kb::Value v = input(*g, b, "v", {32});
  const kb::Value a = b.exp(x), gain = b.softmax(v), y = a * gain;
  g->output("y", y.id);
  const auto runs = find();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].members, (std::vector<int32_t>{at(a), at(y)}));
  EXPECT_EQ(runs[0].before, (std::vector<int32_t>{at(gain)}));
}

TEST_F(RowRuns, leave_alone_single_nodes_few_rows_and_kernels_that_plan) {
  const kb::Value few = input(*g, b, "few", {8, 32});
  g->output("one", b.exp(x).id);
  const kb::Value w = input(*g, b, "w", {32, 32});
  g->output("product", b.matmul(x, w).id);
  g->output("few", b.tanh(b.exp(few)).id);
  EXPECT_TRUE(find().empty());
  const kb::Value a = b.exp(b.matmul(x, w)), y = b.tanh(a);
  g->output("y", y.id);
  EXPECT_EQ(find().size(), 1u);
  const auto none = find_row_runs(
      *g, order, [](const Node& n) { return !n.is("tanh"); }, -1);
  EXPECT_TRUE(none.empty()) << "a kernel with a plan or a workspace is launched once, whole";
}

TEST_F(RowRuns, follow_a_view_that_keeps_the_rows_and_end_at_one_that_does_not) {
  const kb::Value a = b.exp(x), v = b.reshape(a, {512, 4, 8}), y = b.softmax(v);
  g->output("y", y.id);
  const auto runs = find();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].members, (std::vector<int32_t>{at(a), at(y)}));

  const kb::Value c = b.tanh(x), flat = b.reshape(c, {1024, 16}), z = b.softmax(flat);
  g->output("z", z.id);
  for (const RowRun& r : find()) EXPECT_FALSE(r.first <= at(c) && at(z) <= r.last) << "rows of z are not rows of c";
}

TEST_F(RowRuns, know_which_moves_and_reductions_cross_rows) {
  auto local = [&](kb::Value v) { return !row_inputs(*g, g->nodes[g->values[v.id].maker]).empty(); };
  EXPECT_TRUE(local(b.sum(x, 1, true)));
  EXPECT_FALSE(local(b.sum(x, 0, true)));
  EXPECT_TRUE(local(b.slice(x, 1, 0, 8)));
  EXPECT_FALSE(local(b.slice(x, 0, 0, 8)));
  EXPECT_TRUE(local(b.concat({x, x}, 1)));
  EXPECT_FALSE(local(b.concat({x, x}, 0)));
  const kb::Value cube = input(*g, b, "cube", {512, 4, 8});
  EXPECT_TRUE(local(b.permute(cube, {0, 2, 1})));
  EXPECT_FALSE(local(b.permute(x, {1, 0})));
  const kb::Value square = input(*g, b, "square", {512, 512});
  EXPECT_FALSE(local(b.permute(square, {1, 0}))) << "as many rows as before, but other ones";
}

}  // namespace
}  // namespace kitbash
