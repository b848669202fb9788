// Which kernel runs a node, and the reasons that a user gets when none can.
#include "tests/runtime/fixture.h"

namespace kitbash {
namespace {

using test::error_of;
using test::input;
using test::Machine;

const std::string choosy = std::string(KITBASH_TEST_PLUGINS) + "/libkb_test_choosy.so";

struct Kernels : ::testing::Test {
  Machine machine{{choosy}};
  std::unique_ptr<Graph> g = machine.graph();
  kb::Builder b = g->builder();
  Choice choose(kb::Value v) { return choose_kernel(*g, g->maker(v.id), machine.device); }
};

TEST_F(Kernels, of_the_highest_priority_that_accepts_the_call_runs) {
  const Choice c = choose(b.erf(input(*g, b, "x", {8})));
  EXPECT_STREQ(c.kernel->name, "only-eight");
  EXPECT_EQ(c.provider, "choosy");
  EXPECT_EQ(c.declined, "");
}

TEST_F(Kernels, that_decline_leave_their_reason) {
  const Choice c = choose(b.erf(input(*g, b, "x", {9})));
  EXPECT_EQ(c.provider, "backend-cpu");
  EXPECT_EQ(c.declined, "only-eight: wants 8 elements but got 9; ");
}

TEST_F(Kernels, may_be_left_out_by_name) {
  setenv("KITBASH_WITHOUT_KERNELS", "other,only-eight", 1);
  const Choice c = choose(b.erf(input(*g, b, "x", {8})));
  unsetenv("KITBASH_WITHOUT_KERNELS");
  EXPECT_EQ(c.provider, "backend-cpu");
  EXPECT_EQ(c.declined, "only-eight: left out by KITBASH_WITHOUT_KERNELS; ");
}

TEST_F(Kernels, that_cannot_accumulate_are_passed_over_where_a_sum_is_folded) {
  const kb::Value y = b.erf(input(*g, b, "x", {8}));
  Node& n = g->maker(y.id);
  n.base = {y.id};
  EXPECT_NE(error_of([&] { choose(y); }).find("only-eight: cannot accumulate"), std::string::npos);
}

TEST_F(Kernels, that_are_missing_are_an_error_with_place_and_operands) {
  Graph::Scope scope(*g, "layers.2.ffn", Phase::forward);
  const kb::Value y = b.emit("choosy_nowhere", {input(*g, b, "x", {8, 2})});
  EXPECT_EQ(error_of([&] { choose(y); }),
            "[layers.2.ffn] choosy_nowhere(f32 [8, 2]): no kernel can run it on the cpu device: none is known");
}

TEST_F(Kernels, that_all_decline_are_an_error_with_every_reason) {
  const kb::Value y = b.emit("choosy_never", {input(*g, b, "x", {8, 2})});
  EXPECT_EQ(error_of([&] { choose(y); }),
            "[test] choosy_never(f32 [8, 2]): no kernel can run it on the cpu device: plain: never runs; ");
}

TEST_F(Kernels, of_the_backend_do_not_run_bf16) {
  auto narrow = machine.graph(KB_TRAIN, KB_BF16);
  kb::Builder n = narrow->builder();
  const kb::Value y = n.exp(input(*narrow, n, "x", {8}, KB_BF16));
  const std::string e = error_of([&] { choose_kernel(*narrow, narrow->maker(y.id), machine.device); });
  EXPECT_NE(e.find("exp(bf16 [8]): no kernel can run it on the cpu device: "), std::string::npos) << e;
}

}  // namespace
}  // namespace kitbash
