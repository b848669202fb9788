// Which additions disappear into the kernel that makes one operand, and which must not.
#include "tests/passes/fixture.h"

namespace kitbash {
namespace {

using test::Bench;
using test::input;

bool products(const Node& n, uint32_t) { return n.is("matmul"); }
bool nothing(const Node&, uint32_t) { return false; }

struct Sum : ::testing::Test {
  Bench bench;
  std::unique_ptr<Graph> g = bench.graph();
  kb::Builder b = g->builder();
  kb::Value x = input(*g, b, "x", {4, 8}), y = input(*g, b, "y", {4, 8}), w = input(*g, b, "w", {8, 8});
  kb::Value product(kb::Value v) { return b.linear(v, w); }
  // Folds with products as the only accumulating kernels, and gives the node that makes the output.
  int64_t fold(kb::Value result) {
    g->output("out", result.id);
    return fold_adds(*g, products);
  }
  const Node& result() { return g->maker(g->outputs.at("out")); }
};

TEST_F(Sum, of_a_later_product_is_folded_into_it) {
  const kb::Value a = b.exp(x), p = product(y);
  EXPECT_EQ(fold(a + p), 1);
  EXPECT_TRUE(result().is("matmul"));
  ASSERT_EQ(result().base.size(), 1u);
  EXPECT_EQ(result().base[0], a.id);
  const std::vector<NodeId> order = schedule(*g);
  EXPECT_TRUE(std::none_of(order.begin(), order.end(), [&](NodeId id) { return g->nodes[id].is("add"); }));
}

TEST_F(Sum, of_two_products_adds_the_later_to_the_earlier) {
  const kb::Value p = product(x), q = product(y);
  EXPECT_EQ(fold(q + p), 1);  // whatever side it stands on
  EXPECT_EQ(g->outputs.at("out"), q.id);
  EXPECT_EQ(result().base[0], p.id);
}

TEST_F(Sum, of_many_products_is_a_chain) {
  const kb::Value p = product(x), q = product(y), r = product(b.exp(y));
  EXPECT_EQ(fold((p + q) + r), 2);
  EXPECT_EQ(g->outputs.at("out"), r.id);
  EXPECT_EQ(result().base[0], q.id);
  EXPECT_EQ(g->maker(q.id).base[0], p.id);
}

TEST_F(Sum, with_a_stored_accumulator_is_folded) {
  const kb::Value old{&b, bench.stored(*g, "grad.w", {4, 8})};
  const kb::Value p = product(x);
  g->write(old.id, (old + p).id);
  EXPECT_EQ(fold_adds(*g, products), 1);
  EXPECT_EQ(g->writes[0].value, p.id);
  EXPECT_EQ(g->maker(p.id).base[0], old.id);
}

TEST_F(Sum, stays_without_a_kernel_that_accumulates) {
  g->output("out", (b.exp(x) + product(y)).id);
  EXPECT_EQ(fold_adds(*g, nothing), 0);
  EXPECT_TRUE(result().is("add"));
}

TEST_F(Sum, stays_when_the_product_is_read_elsewhere) {
  const kb::Value p = product(y);
  g->output("p", p.id);
  EXPECT_EQ(fold(b.exp(x) + p), 0);
}

TEST_F(Sum, stays_when_the_other_operand_is_read_elsewhere) {
  const kb::Value a = b.exp(x);
  g->reports["a"] = a.id;
  EXPECT_EQ(fold(a + product(y)), 0);
}

TEST_F(Sum, stays_when_the_other_operand_is_made_after_the_product) {
  const kb::Value p = product(y), a = b.exp(x);
  EXPECT_EQ(fold(a + p), 0);
}

TEST_F(Sum, of_a_value_with_itself_stays) {
  const kb::Value p = product(x);
  EXPECT_EQ(fold(p + p), 0);
}

TEST_F(Sum, of_other_shapes_or_types_stays) {
  const kb::Value row = b.sum(b.exp(x), 0);  // broadcasts
  EXPECT_EQ(fold(row + product(y)), 0);
  const kb::Value wide = b.cast(x, KB_F64), q = product(b.tanh(y));
  g->output("out", (wide + q).id);
  EXPECT_EQ(fold_adds(*g, products), 0);
}

TEST_F(Sum, of_a_narrow_product_with_a_wide_accumulator_makes_the_product_wide) {
  const kb::Value narrow = b.cast(x, KB_BF16), v = b.cast(w, KB_BF16);
  const kb::Value old{&b, bench.stored(*g, "grad.w", {4, 8})}, p = b.linear(narrow, v);
  g->write(old.id, (old + b.cast(p, KB_F32)).id);
  EXPECT_EQ(fold_adds(*g, products), 1);
  EXPECT_EQ(g->writes[0].value, p.id);
  EXPECT_EQ(g->type(p.id).dtype, uint32_t(KB_F32));
  EXPECT_EQ(g->maker(p.id).base[0], old.id);
  for (NodeId id : schedule(*g)) EXPECT_FALSE(g->nodes[id].is("cast") && g->nodes[id].in[0] == p.id);
}

TEST_F(Sum, of_a_narrow_product_stays_where_no_kernel_writes_wide) {
  const kb::Value narrow = b.cast(x, KB_BF16), v = b.cast(w, KB_BF16);
  const kb::Value old{&b, bench.stored(*g, "grad.w", {4, 8})}, p = b.linear(narrow, v);
  const kb::Value sum = old + b.cast(p, KB_F32);
  g->write(old.id, sum.id);
  const auto narrow_only = [&](const Node& n, uint32_t o) {
    return n.is("matmul") && g->type(n.out[o]).dtype == g->type(n.in[0]).dtype;
  };
  EXPECT_EQ(fold_adds(*g, narrow_only), 0);
  EXPECT_EQ(g->type(p.id).dtype, uint32_t(KB_BF16));
  EXPECT_EQ(g->writes[0].value, sum.id);
  EXPECT_TRUE(g->maker(p.id).base.empty() || !g->maker(p.id).base[0]);
}

TEST_F(Sum, of_a_narrow_product_that_is_read_elsewhere_stays) {
  const kb::Value p = b.linear(b.cast(x, KB_BF16), b.cast(w, KB_BF16));
  const kb::Value old{&b, bench.stored(*g, "grad.w", {4, 8})};
  g->output("p", p.id);
  g->write(old.id, (old + b.cast(p, KB_F32)).id);
  EXPECT_EQ(fold_adds(*g, products), 0);
}

TEST_F(Sum, with_a_fed_input_stays) {  // a feed must not be changed: the caller may run again with it
  EXPECT_EQ(fold(x + product(y)), 0);
}

TEST_F(Sum, stays_when_the_product_has_a_base_already) {
  const kb::Value a = b.exp(x), c = b.exp(y), p = product(y);
  EXPECT_EQ(fold((a + p) + c), 1);
  EXPECT_EQ(g->maker(p.id).base[0], a.id);
  EXPECT_TRUE(result().is("add"));
}

TEST_F(Sum, of_recomputed_values_stays) {
  kb::Value loss;
  {
    Graph::Scope scope(*g, "layer", Phase::forward, 0);
    loss = b.sum(b.reshape(b.tanh(b.exp(x) + product(y)), {-1}), 0);
  }
  g->output("dx", differentiate(*g, loss.id, {x.id}).at(x.id));
  recompute_segments(*g);
  fold_adds(*g, products);
  for (const Node& n : g->nodes)
    if (n.phase == Phase::recompute) {
      EXPECT_TRUE(n.base.empty() || !n.base[0]) << "a clone runs at another place than its number says";
    }
}

}  // namespace
}  // namespace kitbash
