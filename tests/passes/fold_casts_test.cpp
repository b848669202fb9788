// Which products read the narrow value that was widened for them.
#include "tests/passes/fixture.h"

namespace kitbash {
namespace {

using test::Bench;

struct Narrow : ::testing::Test {
  Bench bench;
  std::unique_ptr<Graph> g = bench.graph();
  kb::Builder b = g->builder();
  kb::Value x{&b, g->input("x", make_type(KB_BF16, {4, 8}))}, w{&b, g->input("w", make_type(KB_F32, {6, 8}))};
  // A device that multiplies equal types, and bf16 by f32.
  const void* kernel(const Node& n) {
    static const char equal = 0, mixed = 0;
    const uint32_t a = g->type(n.in[0]).dtype, c = g->type(n.in[1]).dtype;
    return a == c ? &equal : a == KB_BF16 && c == KB_F32 ? &mixed : nullptr;
  }
  int64_t fold() {
    return fold_casts(*g, [this](const Node& n) { return kernel(n); });
  }
  bool casts_are_left() {
    const std::vector<NodeId> order = schedule(*g);
    return std::any_of(order.begin(), order.end(), [&](NodeId id) { return g->nodes[id].is("cast"); });
  }
};

TEST_F(Narrow, operand_is_read_where_a_kernel_takes_it) {
  const kb::Value y = b.linear(b.cast(x, KB_F32), w);
  g->output("y", y.id);
  EXPECT_EQ(fold(), 1);
  EXPECT_EQ(g->maker(y.id).in[0], x.id);
  EXPECT_EQ(g->type(y.id).dtype, uint32_t(KB_F32));
  EXPECT_FALSE(casts_are_left());
}

TEST_F(Narrow, operand_is_left_where_none_takes_it) {
  const kb::Value wide = b.cast(x, KB_F32), y = b.matmul(w, wide, false, true);
  g->output("y", y.id);
  EXPECT_EQ(fold(), 0);
  EXPECT_EQ(g->maker(y.id).in[1], wide.id);
}

TEST_F(Narrow, operand_is_left_to_a_kernel_that_takes_anything) {
  const kb::Value y = b.linear(b.cast(x, KB_F32), w);
  g->output("y", y.id);
  EXPECT_EQ(fold_casts(*g, [this](const Node&) { return this; }), 0);
}

TEST_F(Narrow, operand_of_what_is_no_product_is_left) {
  const kb::Value y = b.exp(b.cast(x, KB_F32));
  g->output("y", y.id);
  EXPECT_EQ(fold(), 0);
  EXPECT_TRUE(casts_are_left());
}

TEST_F(Narrow, is_not_what_was_cast_from_a_wider_type) {
  const kb::Value y = b.linear(x, b.cast(w, KB_BF16));
  g->output("y", y.id);
  EXPECT_EQ(fold(), 0);
}

}  // namespace
}  // namespace kitbash
