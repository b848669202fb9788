// Reverse mode: which rules are asked, what types gradients have, and what is said when a rule is missing. The numbers are
// checked elsewhere: by the oracle vectors (ci/check-vectors) and against differences (tests/conformance).
#include "tests/passes/fixture.h"

namespace kitbash {
namespace {

using test::Bench;
using test::count;
using test::error_of;
using test::input;

TEST(Differentiate, names_the_op_without_a_rule_and_its_place) {
  Bench bench;
  auto g = bench.graph();
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {4});
  kb::Value loss;
  {
    Graph::Scope scope(*g, "layers.3.attn", Phase::forward);
    loss = b.sum(b.floor(x), 0);
  }
  EXPECT_EQ(error_of([&] { differentiate(*g, loss.id, {x.id}); }),
            "[layers.3.attn] op floor has no gradient; detach its input or use another op");
}

TEST(Differentiate, asks_no_rule_of_an_op_through_which_nothing_wanted_flows) {
  Bench bench;
  auto g = bench.graph();
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {4}), y = input(*g, b, "y", {4});
  const kb::Value loss = b.sum(b.floor(x) * y, 0);
  const auto d = differentiate(*g, loss.id, {y.id});
  EXPECT_EQ(d.size(), 1u);
  EXPECT_EQ(count(*g, "mul", Phase::backward), 1);  // dy alone
}

TEST(Differentiate, builds_nothing_for_operands_that_need_no_gradient) {
  Bench bench;
  auto g = bench.graph();
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {4, 8}), w = input(*g, b, "w", {2, 8}), unused = input(*g, b, "unused", {3});
  const kb::Value loss = b.sum(b.reshape(b.linear(x, w), {-1}), 0);
  const auto d = differentiate(*g, loss.id, {w.id, unused.id});
  EXPECT_EQ(count(*g, "matmul", Phase::backward), 1);
  EXPECT_TRUE(d.count(w.id));
  EXPECT_FALSE(d.count(unused.id));
}

TEST(Differentiate, stops_at_detach_and_at_integers) {
  Bench bench;
  auto g = bench.graph();
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {6, 8}), y = input(*g, b, "y", {6, 2});
  const kb::Values top = b.topk(b.detach(x), 2);
  const kb::Value loss = b.sum(b.reshape(b.take(x, top[1]) * y, {-1}), 0);
  const auto d = differentiate(*g, loss.id, {x.id, y.id});
  EXPECT_TRUE(d.count(x.id));  // through take alone
  EXPECT_TRUE(d.count(y.id));
  EXPECT_EQ(count(*g, "untake", Phase::backward), 1);
}

TEST(Differentiate, casts_a_gradient_to_the_type_of_its_value) {
  Bench bench;
  auto g = bench.graph(KB_TRAIN, KB_BF16);
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {4}, KB_BF16), scale = input(*g, b, "scale", {4}, KB_F32);
  const kb::Value loss = b.sum(b.wide(x) * scale, 0);
  const auto d = differentiate(*g, loss.id, {x.id, scale.id});
  EXPECT_EQ(g->type(d.at(x.id)).dtype, uint32_t(KB_BF16));
  EXPECT_EQ(g->type(d.at(scale.id)).dtype, uint32_t(KB_F32));
}

TEST(Differentiate, gives_a_mixed_product_the_type_of_each_operand) {
  Bench bench;
  auto g = bench.graph(KB_TRAIN, KB_BF16);
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {4}, KB_BF16), scale = input(*g, b, "scale", {4}, KB_F32);
  const kb::Value loss = b.sum(x * scale, 0);  // the product computes in the wider type
  const auto d = differentiate(*g, loss.id, {x.id});
  EXPECT_EQ(g->type(d.at(x.id)).dtype, uint32_t(KB_BF16));
}

TEST(Differentiate, sums_a_broadcast_operand_to_its_shape) {
  Bench bench;
  auto g = bench.graph();
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {4, 8}), bias = input(*g, b, "bias", {8});
  const kb::Value loss = b.sum(b.reshape(x + bias, {-1}), 0);
  const auto d = differentiate(*g, loss.id, {bias.id});
  EXPECT_TRUE(same_shape(g->type(d.at(bias.id)), g->type(bias.id)));
  EXPECT_EQ(count(*g, "sum_to", Phase::backward), 1);
}

TEST(Differentiate, adds_the_gradients_of_every_use) {
  Bench bench;
  auto g = bench.graph();
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {4});
  const kb::Value loss = b.sum(b.exp(x) + b.sin(x) + b.tanh(x), 0);
  differentiate(*g, loss.id, {x.id});
  EXPECT_EQ(count(*g, "add", Phase::backward), 2);
}

TEST(Differentiate, wants_a_scalar) {
  Bench bench;
  auto g = bench.graph();
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {4});
  EXPECT_EQ(error_of([&] { differentiate(*g, b.exp(x).id, {x.id}); }), "the loss must be a scalar but got f32 [4]");
}

struct WrongShape {
  static constexpr const char* name = "test_wrong_shape";
  void infer(kb::Infer& s) const { s.like(s.in(0, "x")); }
  void gradient(kb::Grad& g) const { g.down(0, g.b.sum(g.up(0), 0)); }
};

TEST(Differentiate, refuses_a_rule_that_gives_another_shape) {
  Bench bench;
  bench.registry.add_base_op(kb::op_table<WrongShape>());
  auto g = bench.graph();
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {4});
  Graph::Scope scope(*g, "here", Phase::forward);
  const kb::Value loss = b.sum(b.emit("test_wrong_shape", {x}), 0);
  EXPECT_EQ(error_of([&] { differentiate(*g, loss.id, {x.id}); }),
            "[here] backward of test_wrong_shape gives f32 [] for input 0, which is f32 [4]");
}

}  // namespace
}  // namespace kitbash
