// Running: extents, accumulation into the store, the transaction of a step, and what a check says.
#include <cmath>

#include "tests/runtime/fixture.h"

namespace kitbash {
namespace {

using test::error_of;
using test::input;
using test::Machine;
using test::Running;

const std::string choosy = std::string(KITBASH_TEST_PLUGINS) + "/libkb_test_choosy.so";
using Floats = std::vector<float>;

ValueId stored(Machine& m, Graph& g, const std::string& name, const std::vector<int64_t>& shape, double fill = 0,
               Life life = Life::accumulator) {
  StoreEntry e;
  e.name = name, e.type = make_type(KB_F32, shape), e.fill = fill, e.life = life;
  m.store.declare(e);
  return g.read(name);
}

TEST(Program, clears_the_rows_past_the_extent_whatever_the_kernel_wrote) {
  Machine m({choosy});
  auto g = m.graph();
  kb::Builder b = g->builder();
  const kb::Value x{&b, g->input("x", make_type(KB_F32, {4, 2}, g->extent("tokens")))};
  g->output("y", b.emit("choosy_careless", {x}).id);
  g->output("rows", b.sum(b.emit("choosy_careless", {x}) + 1.0, 0).id);
  Running r(std::move(g), m);
  r.feed("x", Floats(8, 1));
  r.program.set_extent("tokens", 3);
  r.program.run();
  EXPECT_EQ(r.output("y"), (Floats{7, 7, 7, 7, 7, 7, 0, 0}));
  EXPECT_EQ(r.output("rows"), (Floats{24, 24})) << "unused rows must count nowhere";
  r.program.set_extent("tokens", 0);
  r.program.run();
  EXPECT_EQ(r.output("rows"), (Floats{0, 0}));
  r.program.set_extent("tokens", 4);
  r.program.run();
  EXPECT_EQ(r.output("rows"), (Floats{32, 32}));
}

TEST(Program, adds_to_accumulators_over_runs) {
  Machine m;
  auto g = m.graph();
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {2, 2}), w = input(*g, b, "w", {2, 2});
  const kb::Value sum{&b, stored(m, *g, "sum", {2, 2}, 10)};
  g->write(sum.id, (sum + b.matmul(x, w)).id);
  Running r(std::move(g), m);
  r.feed("x", {1, 2, 3, 4});
  r.feed("w", {1, 0, 0, 1});
  r.program.run();
  r.program.run();
  EXPECT_EQ(r.stored("sum"), (Floats{12, 14, 16, 18}));
}

// w <- w - x, guarded by `step_ok`; the count goes back to its start either way.
struct Step {
  Machine m;
  std::unique_ptr<Running> r;
  Step() {
    auto g = m.graph(KB_STEP);
    kb::Builder b = g->builder();
    const kb::Value x = input(*g, b, "x", {2});
    const kb::Value w{&b, stored(m, *g, "w", {2}, 5, Life::param)},
        other{&b, stored(m, *g, "other", {2}, 6, Life::param)};
    stored(m, *g, "count", {2}, 3);
    g->write(w.id, (w - x).id);
    g->write(other.id, b.exp(w - x).id);
    g->resets.push_back("count");
    g->output("step_ok", b.is_finite(b.square_sum(x)).id);
    r = std::make_unique<Running>(std::move(g), m);
    reinterpret_cast<float*>(r->memory.at("count"))[1] = 77;
  }
};

TEST(Program, writes_everything_when_the_step_is_good) {
  Step s;
  s.r->feed("x", {1, 5});
  s.r->program.run();
  EXPECT_EQ(s.r->program.scalar("step_ok"), 1);
  EXPECT_EQ(s.r->stored("w"), (Floats{4, 0}));
  EXPECT_FLOAT_EQ(s.r->stored("other")[1], 1);
  EXPECT_EQ(s.r->stored("count"), (Floats{3, 3}));
}

TEST(Program, writes_nothing_when_the_step_is_bad_and_still_starts_counting_afresh) {
  Step s;
  s.r->feed("x", {1, NAN});
  s.r->program.run();
  EXPECT_EQ(s.r->program.scalar("step_ok"), 0);
  EXPECT_EQ(s.r->stored("w"), (Floats{5, 5}));
  EXPECT_EQ(s.r->stored("other"), (Floats{6, 6}));
  EXPECT_EQ(s.r->stored("count"), (Floats{3, 3}));
}

TEST(Program, names_the_first_node_that_is_not_finite) {
  Machine m;
  auto g = m.graph();
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {3});
  {
    Graph::Scope scope(*g, "layers.5.attn", Phase::forward);
    g->output("y", b.sum(b.log(x), 0).id);
  }
  Running r(std::move(g), m);
  r.feed("x", {1, 2, 3});
  EXPECT_FALSE(r.program.run(Check::finite));
  r.feed("x", {1, 0, 3});
  const auto bad = r.program.run(Check::finite);
  ASSERT_TRUE(bad);
  EXPECT_EQ(*bad, "[layers.5.attn] log: output 0 has -inf at element 1");
}

TEST(Program, names_a_node_whose_numbers_leave_the_range_it_declared) {
  Machine m({choosy});
  auto g = m.graph();
  kb::Builder b = g->builder();
  kb_type t = make_type(KB_F32, {2});
  t.lo = 0, t.hi = 1;
  const kb::Value x{&b, g->input("x", t)};
  g->output("y", b.emit("choosy_careless", {x}).id);  // keeps no range
  g->output("z", b.affine(x, 2, 0).id);
  Running r(std::move(g), m);
  r.feed("x", {0.5, 0.25});
  EXPECT_FALSE(r.program.run(Check::range));
  r.feed("x", {0.5, 1.5});  // not in [0, 1], as the input was declared to be
  const auto bad = r.program.run(Check::range);
  ASSERT_TRUE(bad);
  EXPECT_EQ(*bad, "[test] affine: output 0 has 3 at element 1, outside [0, 2]");
}

TEST(Program, names_inputs_and_outputs_that_do_not_exist) {
  Machine m;
  auto g = m.graph();
  kb::Builder b = g->builder();
  g->output("y", b.exp(input(*g, b, "x", {3})).id);
  Running r(std::move(g), m);
  EXPECT_EQ(error_of([&] { r.program.input("z"); }), "[test] has no input 'z'");
  EXPECT_EQ(error_of([&] { r.program.output("z"); }), "[test] has no output 'z'");
}

TEST(Program, takes_an_input_that_nothing_reads) {
  Machine m;
  auto g = m.graph();
  kb::Builder b = g->builder();
  input(*g, b, "unused", {1000});
  g->output("y", b.exp(input(*g, b, "x", {1})).id);
  Running r(std::move(g), m);
  r.feed("unused", Floats(1000, 3));
  r.feed("x", {0});
  r.program.run();
  EXPECT_EQ(r.output("y"), (Floats{1}));
}

TEST(Program, computes_no_output_that_nobody_wants) {
  Machine m;
  auto g = m.graph();
  kb::Builder b = g->builder();
  const kb::Value x = input(*g, b, "x", {2, 4}), w = input(*g, b, "w", {4}), dy = input(*g, b, "dy", {2, 4});
  g->output("dw", b.emit_n("rms_norm_backward", {x, w, dy}, {{"eps", 1e-5}})[1].id);
  Running r(std::move(g), m);
  for (const char* name : {"x", "w", "dy"}) r.feed(name, Floats(std::string(name) == "w" ? 4 : 8, 1));
  r.program.run();
  for (float v : r.output("dw")) EXPECT_NEAR(v, 2, 1e-4);  // sum over two rows of x / rms = 1
}

}  // namespace
}  // namespace kitbash
