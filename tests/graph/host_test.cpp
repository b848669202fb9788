// What a component may ask of the host while it builds, and what it is told when it asks for something wrong: every sentence
// begins with the place, which is the component's path, its id and its line in the recipe.
#include <functional>

#include "kitbash/kinds/norm.h"
#include "kitbash/plugin.h"
#include "tests/passes/fixture.h"

namespace kitbash {
namespace {

using test::Bench;
using test::error_of;
using test::input;

// A component whose build is set by each test.
struct Body : kb::Norm<Body> {
  static inline std::function<kb::Value(kb::Builder&, kb::Value)> body;
  static inline std::function<void(kb::Builder&)> after;
  kb::Value build(kb::Builder& b, kb::Value x) const { return body(b, x); }
  void update(kb::Builder& b) const { after(b); }
};
struct Inner : kb::Norm<Inner> {
  static inline std::function<kb::Value(kb::Builder&, kb::Value)> body;
  kb::Value build(kb::Builder& b, kb::Value x) const { return body(b, x); }
};

struct Made {
  ComponentInfo info;
  ComponentConfig config;
  template <class T>
  std::unique_ptr<Instance> make(const char* name, int line) {
    info.kind = "norm", info.name = name;
    config.info = &info;
    config.where = {"tiny.toml", line, 3};
    auto i = std::make_unique<Instance>();
    i->config = &config;
    i->table = kb::component_table<T>(name);
    i->self = new T;
    return i;
  }
};

struct Host : ::testing::Test {
  Bench bench;
  Made outer, inner;
  std::unique_ptr<Instance> component = outer.make<Body>("body", 12);
  kb::Slot child;
  Host() {
    component->children["child"] = inner.make<Inner>("inner", 14);
    child.slot = "child";
    Body::after = [](kb::Builder&) {};
  }
  // Builds `body` in a graph of the mode, at layers.1.norm; gives what it says when it fails.
  std::string build(uint32_t mode, std::function<kb::Value(kb::Builder&, kb::Value)> body) {
    Body::body = std::move(body);
    g = bench.graph(mode);
    kb::Builder b = g->builder();
    const kb::Value x = input(*g, b, "x", {4, 8});
    return error_of([&] { g->output("y", g->build(*component, "layers.1.norm", 0, {x})[0].id); });
  }
  std::unique_ptr<Graph> g;
};

const std::string at = "[layers.1.norm (norm.body, tiny.toml:12)] ";

TEST_F(Host, gives_every_node_the_place_of_its_component) {
  EXPECT_EQ(build(KB_TRAIN, [](kb::Builder& b, kb::Value x) { return b.exp(x); }), "no error");
  EXPECT_EQ(g->describe(g->maker(g->outputs.at("y"))), at + "exp");
}

TEST_F(Host, says_which_op_is_unknown) {
  EXPECT_EQ(build(KB_TRAIN, [](kb::Builder& b, kb::Value x) { return b.emit("expp", {x}); }),
            at + "op expp(f32 [4, 8]): there is no such op");
}

TEST_F(Host, says_what_an_op_must_get_and_what_it_got) {
  EXPECT_EQ(build(KB_TRAIN,
                  [](kb::Builder& b, kb::Value x) {
                    return b.matmul(x, b.zeros({4, 4}));
                  }),
            at + "op matmul(f32 [4, 8], f32 [4, 4]): inner width of b must be 8 but got 4");
  EXPECT_EQ(build(KB_TRAIN,
                  [](kb::Builder& b, kb::Value x) {
                    return b.emit("exp", {x}, {{"sharp", 1.0}});
                  }),
            at + "op exp(f32 [4, 8]): has no attribute 'sharp'");
  EXPECT_EQ(build(KB_TRAIN,
                  [](kb::Builder& b, kb::Value x) {
                    return b.emit("sum", {x}, {{"axis", 0.5}});
                  }),
            at + "op sum(f32 [4, 8]): attribute 'axis' has another type");
  EXPECT_EQ(build(KB_TRAIN,
                  [](kb::Builder& b, kb::Value x) {
                    return b.emit("add", {x, kb::Value{&b, 9999}});
                  }),
            at + "op add(f32 [4, 8], none): value 9999 does not belong to this graph");
}

TEST_F(Host, refuses_an_axis_that_a_value_does_not_have) {
  for (int axis : {2, -3})
    EXPECT_EQ(build(KB_TRAIN,
                    [&](kb::Builder& b, kb::Value x) {
                      b.ones({x.dim(axis)});
                      return x;
                    }),
              at + "a value must have the axis " + std::to_string(axis) + " to ask its size but has 2 axes");
  EXPECT_EQ(error_of([] { make_type(KB_F32, std::vector<int64_t>(9, 1)); }),
            "a tensor must have at most 8 axes but got 9; reshape it");
}

TEST_F(Host, refuses_attributes_with_more_sizes_than_a_shape_has) {
  const std::vector<int64_t> nine(9, 1);
  kb::Attr shape("shape", kb::Shape{});
  shape.count = 9, shape.v.is = nine.data();
  EXPECT_EQ(build(KB_TRAIN, [&](kb::Builder& b, kb::Value x) { return b.emit("reshape", {x}, {shape}); }),
            at + "op reshape(f32 [4, 8]): 'shape' must have at most 8 sizes but got 9");
}

// Positions, rows and offsets are i32.
TEST_F(Host, refuses_more_rows_than_their_numbers_can_tell) {
  EXPECT_EQ(build(KB_TRAIN,
                  [&](kb::Builder& b, kb::Value x) {
                    b.expert_sort({&b, g->input("ids", make_type(KB_I32, {1 << 30, 2}))}, 16);
                    return x;
                  }),
            at + "op expert_sort(i32 [1073741824, 2]): rows are numbered by i32: tokens times experts of a token must "
                 "be at most 2147483647 but got 2147483648 rows; lower micro_tokens");
}

TEST_F(Host, counts_elements_without_overflow) {
  EXPECT_EQ(build(KB_TRAIN,
                  [](kb::Builder& b, kb::Value x) {
                    return b.emit("unslice", {x}, {{"axis", 1}, {"begin", INT64_MAX}, {"size", 8}});
                  }),
            at + "op unslice(f32 [4, 8]): 8 from 9223372036854775807 on do not fit into 8");
  EXPECT_EQ(build(KB_TRAIN,
                  [](kb::Builder& b, kb::Value x) {
                    return b.emit("unslice", {x}, {{"axis", 1}, {"size", int64_t(1) << 62}});
                  }),
            at + "op unslice(f32 [4, 8]): output 0 must have fewer than 2^60 elements but is f32 [4, "
                 "4611686018427387904]");
  EXPECT_EQ(build(KB_TRAIN,
                  [](kb::Builder& b, kb::Value x) {
                    b.param("w", b.ones({3, 0}));
                    return x;
                  }),
            at + "parameter 'layers.1.norm.w' must have elements but is f32 [3, 0]");
  EXPECT_EQ(build(KB_TRAIN, [](kb::Builder& b, kb::Value) { return b.ones({0, 4}) + b.ones({1, 4}); }), "no error");
  EXPECT_EQ(type_text(g->type(g->outputs.at("y"))), "f32 [0, 4]");
}

// Kernels read by these sizes.
TEST_F(Host, refuses_operands_of_ops_whose_sizes_do_not_agree) {
  const auto error = [&](const char* op, const std::vector<std::pair<std::vector<int64_t>, uint32_t>>& operands) {
    const std::string e = build(KB_TRAIN, [&](kb::Builder& b, kb::Value x) {
      kb::Values in;
      for (const auto& [shape, dtype] : operands)
        in.push_back({&b, g->input("i" + std::to_string(in.size()), make_type(dtype, shape))});
      b.emit_n(op, in);
      return x;
    });
    return e.substr(e.find("): ") + 3);
  };
  const std::pair<std::vector<int64_t>, uint32_t> x{{3, 4}, KB_F32}, heads{{3, 2, 4}, KB_F32}, one{{1}, KB_F32},
      cu{{2}, KB_I32}, past{{1}, KB_I32};
  EXPECT_EQ(error("rms_norm", {{{3, 0}, KB_F32}, {{0}, KB_F32}}),
            "x must have at least one channel in its last axis but has none");
  EXPECT_EQ(error("untake", {x, {{2, 4}, KB_I32}}), "size of ids must be 3 but got 2");
  EXPECT_EQ(error("cross_entropy_backward", {x, {{3}, KB_I32}, {{3}, KB_F32}, one, one}),
            "rows of lse must be 3 but got 1");
  EXPECT_EQ(error("short_conv", {x, {{4, 4}, KB_F32}, {{0}, KB_I32}}), "cu must have at least one border but has none");
  EXPECT_EQ(error("short_conv_backward", {x, {{4, 4}, KB_F32}, cu, {{1, 4}, KB_F32}}),
            "size of dy must be 3 but got 1");
  EXPECT_EQ(error("attention", {{{3, 0, 4}, KB_F32}, {{3, 1, 4}, KB_F32}, {{3, 1, 4}, KB_F32}, cu}),
            "heads (0) must be a multiple of the key heads (1)");
  EXPECT_EQ(error("attention_backward", {heads, heads, heads, cu, heads, {{3, 1}, KB_F32}, heads}),
            "size of lse must be 2 but got 1");
  const std::pair<std::vector<int64_t>, uint32_t> cache{{1, 5, 2, 4}, KB_F32};
  EXPECT_EQ(error("attention_cached", {heads, cache, cache, cu, cu}), "past must be 1 but got 2");
  EXPECT_EQ(error("attention_cached", {heads, cache, {{1, 4, 2, 4}, KB_F32}, cu, past}),
            "capacity of v must be 5 but got 4");
  EXPECT_EQ(error("cache_append", {cache, heads, cu, past, cu}), "slot must be 1 but got 2");
}

TEST_F(Host, leaves_out_ops_that_would_change_nothing) {
  EXPECT_EQ(build(KB_TRAIN,
                  [](kb::Builder& b, kb::Value x) {
                    return b.narrow(1.0 * b.reshape(b.wide(x), {4, 8}));
                  }),
            "no error");
  EXPECT_EQ(g->outputs.at("y"), g->inputs.at("x"));
}

TEST_F(Host, resolves_symbolic_types_by_the_graph) {
  Bench other;
  auto narrow = other.graph(KB_TRAIN, KB_BF16), wide = other.graph(KB_TRAIN, KB_F64);
  kb::Builder n = narrow->builder(), w = wide->builder();
  EXPECT_EQ(n.fill({2}, 1, KB_COMPUTE).type().dtype, uint32_t(KB_BF16));
  EXPECT_EQ(n.fill({2}, 1, KB_WIDE).type().dtype, uint32_t(KB_F32));
  EXPECT_EQ(w.fill({2}, 1, KB_COMPUTE).type().dtype, uint32_t(KB_F64));
  EXPECT_EQ(w.fill({2}, 1, KB_WIDE).type().dtype, uint32_t(KB_F64));
}

TEST_F(Host, knows_the_range_of_values_from_the_ops) {
  build(KB_TRAIN, [](kb::Builder& b, kb::Value x) { return -5.0 * b.sigmoid(x); });
  EXPECT_EQ(g->type(g->outputs.at("y")).lo, -5);
  EXPECT_EQ(g->type(g->outputs.at("y")).hi, 0);
}

TEST_F(Host, names_parameters_by_path_and_seeds_them_by_name) {
  EXPECT_EQ(
      build(KB_TRAIN,
            [](kb::Builder& b, kb::Value x) {
              return x * b.sum(b.param("w", b.normal({3, 8}, 1)), 0) * b.sum(b.param("v", b.normal({3, 8}, 1)), 0);
            }),
      "no error");
  ASSERT_NE(bench.store.find("layers.1.norm.w"), nullptr);
  const auto seed = [&](const char* name) { return g->maker(g->init.at(name)).attr[2].v.i; };
  EXPECT_NE(seed("layers.1.norm.w"), 0);
  EXPECT_NE(seed("layers.1.norm.w"), seed("layers.1.norm.v"));
}

TEST_F(Host, refuses_parameters_twice_and_without_a_start) {
  EXPECT_EQ(build(KB_TRAIN,
                  [](kb::Builder& b, kb::Value x) {
                    b.param("w", b.ones({8}));
                    return x * b.param("w", b.ones({8}));
                  }),
            at + "parameter 'layers.1.norm.w' is declared twice");
  EXPECT_EQ(build(KB_TRAIN, [](kb::Builder& b, kb::Value x) { return x * b.param("w", {}); }),
            at + "parameter 'layers.1.norm.w' has no initial value");
}

TEST_F(Host, refuses_one_name_with_two_shapes_in_two_programs) {
  const auto body = [](int64_t n) {
    return [n](kb::Builder& b, kb::Value x) {
      b.param("w", b.ones({n}));
      return x;
    };
  };
  EXPECT_EQ(build(KB_TRAIN, body(8)), "no error");
  EXPECT_EQ(build(KB_EVAL, body(8)), "no error");
  EXPECT_EQ(build(KB_EVAL, body(6)), at + "'layers.1.norm.w' is already declared as f32 [8] but now as f32 [6]");
}

TEST_F(Host, gives_serving_states_their_slots_and_capacity) {
  GraphOptions o;
  o.mode = KB_DECODE, o.slots = 3, o.capacity = 7;
  Graph serve("serve", o, bench.registry, bench.store);
  kb::Builder b = serve.builder();
  EXPECT_EQ(type_text(b.state("s", KB_STATE_SEQUENCE, {2}).type()), "f32 [3, 2]");
  EXPECT_EQ(type_text(b.state("t", KB_STATE_TOKEN, {2}).type()), "f32 [3, 7, 2]");
}

TEST_F(Host, keeps_states_to_the_modes_in_which_they_live) {
  const auto state = [](kb_life life) {
    return [life](kb::Builder& b, kb::Value x) {
      b.state("s", life, {8});
      return x;
    };
  };
  EXPECT_EQ(build(KB_TRAIN, state(KB_STATE_TOKEN)),
            at + "state 'layers.1.norm.s' belongs to prefill and decode; this graph has none");
  EXPECT_EQ(build(KB_EVAL, state(KB_STATE_STEP)),
            at + "state 'layers.1.norm.s' counts training steps; it does not exist here");
  EXPECT_EQ(build(KB_TRAIN, state(KB_STATE_OPTIMIZER)), at + "state 'layers.1.norm.s' belongs to the optimiser");
  EXPECT_EQ(build(KB_TRAIN, state(kb_life(7))), at + "state 'layers.1.norm.s' has no known life (7)");
  EXPECT_EQ(build(KB_TRAIN, state(KB_STATE_STEP)), "no error");
  EXPECT_EQ(build(KB_EVAL, state(KB_STATE_MODEL)),
            at + "'layers.1.norm.s' is already declared as step and cannot be model too");
}

// The table of lives (core/README.md): who may write what, in which mode.
TEST_F(Host, lets_each_mode_write_only_its_own_values) {
  const auto write = [](kb_life life) {
    return [life](kb::Builder& b, kb::Value x) {
      const kb::Value s = b.state(std::to_string(life).c_str(), life, {8});
      b.write(s, s + 1.0);
      return x;
    };
  };
  EXPECT_EQ(build(KB_TRAIN, write(KB_STATE_STEP)), "no error");
  EXPECT_EQ(build(KB_TRAIN, write(KB_STATE_MODEL)),
            at + "'layers.1.norm.0' is a model value and must not be written in mode train");
  EXPECT_EQ(build(KB_EVAL, write(KB_STATE_MODEL)),
            at + "'layers.1.norm.0' is a model value and must not be written in mode eval");
  EXPECT_EQ(build(KB_PREFILL, write(KB_STATE_SEQUENCE)), "no error");
  EXPECT_EQ(build(KB_DECODE, write(KB_STATE_TOKEN)), "no error");
  EXPECT_EQ(build(KB_DECODE, write(KB_STATE_MODEL)),
            at + "'layers.1.norm.0' is a model value and must not be written in mode decode");
  EXPECT_EQ(build(KB_STEP, write(KB_STATE_OPTIMIZER)), "no error");
  EXPECT_EQ(build(KB_STEP, write(KB_STATE_MODEL)),
            at + "'layers.1.norm.0' is a model value and must not be written in mode step");
  EXPECT_EQ(build(KB_TRAIN,
                  [](kb::Builder& b, kb::Value x) {
                    const kb::Value w = b.param("w", b.ones({8}));
                    b.write(w, w + 1.0);
                    return x;
                  }),
            at + "'layers.1.norm.w' is a parameter value and must not be written in mode train");
}

TEST_F(Host, lets_update_write_what_training_counted) {
  ASSERT_EQ(build(KB_TRAIN,
                  [](kb::Builder& b, kb::Value x) {
                    const kb::Value load = b.state("load", KB_STATE_STEP, {8});
                    b.state("bias", KB_STATE_MODEL, {8});
                    b.write(load, load + b.sum(x, 0));
                    return x;
                  }),
            "no error");
  Body::after = [](kb::Builder& b) { b.write(b.find("bias"), b.find("bias") - b.find("load")); };
  auto update = bench.graph(KB_UPDATE);
  EXPECT_EQ(error_of([&] { update->build_update(*component); }), "no error");
  ASSERT_EQ(update->writes.size(), 1u);
  EXPECT_EQ(update->writes[0].name, "layers.1.norm.bias");
}

TEST_F(Host, refuses_writes_of_other_things_and_of_other_shapes) {
  EXPECT_EQ(build(KB_TRAIN,
                  [](kb::Builder& b, kb::Value x) {
                    b.write(b.exp(x), x);
                    return x;
                  }),
            at + "only a state or a parameter can be written");
  EXPECT_EQ(build(KB_TRAIN,
                  [](kb::Builder& b, kb::Value x) {
                    b.write(b.state("s", KB_STATE_STEP, {8}), x);
                    return x;
                  }),
            at + "'layers.1.norm.s' is f32 [8] but is written as f32 [4, 8]");
  EXPECT_EQ(build(KB_TRAIN,
                  [](kb::Builder& b, kb::Value x) {
                    const kb::Value s = b.state("s", KB_STATE_STEP, {8});
                    b.write(s, s + 1.0);
                    b.write(s, s + 2.0);
                    return x;
                  }),
            at + "'layers.1.norm.s' is written twice");
}

TEST_F(Host, shows_what_was_written_to_those_who_ask_later) {
  kb::Value now;
  EXPECT_EQ(build(KB_TRAIN,
                  [&](kb::Builder& b, kb::Value x) {
                    const kb::Value s = b.state("s", KB_STATE_STEP, {8});
                    now = s + 1.0;
                    b.write(s, now);
                    EXPECT_EQ(b.find("s").id, now.id);
                    return x;
                  }),
            "no error");
}

TEST_F(Host, copies_what_another_entry_holds) {
  EXPECT_EQ(build(KB_TRAIN,
                  [&](kb::Builder& b, kb::Value x) {
                    const kb::Value before = b.state("before", KB_STATE_STEP, {8}),
                                    now = b.state("now", KB_STATE_STEP, {8});
                    b.write(before, now);
                    b.write(now, now + b.sum(x, 0));
                    return x;
                  }),
            "no error");
  ASSERT_EQ(g->writes.size(), 2u);
  EXPECT_EQ(g->writes[0].name, "layers.1.norm.before");
  EXPECT_TRUE(g->maker(g->writes[0].value).is("copy"));
  EXPECT_EQ(g->writes[1].name, "layers.1.norm.now");
}

TEST_F(Host, builds_children_under_their_slot_and_tells_where_they_fail) {
  Inner::body = [](kb::Builder& b, kb::Value x) { return x * b.param("w", b.ones({8})); };
  const auto call = [&](kb::Builder& b, kb::Value x) { return b.call(child, 0, {x})[0]; };
  EXPECT_EQ(build(KB_TRAIN, call), "no error");
  EXPECT_NE(bench.store.find("layers.1.norm.child.w"), nullptr);
  Inner::body = [](kb::Builder& b, kb::Value x) { return b.reshape(x, {5}); };
  EXPECT_EQ(
      build(KB_TRAIN, call),
      "[layers.1.norm.child (norm.inner, tiny.toml:14)] op reshape(f32 [4, 8]): reshape must keep 32 elements but the "
      "new shape has 5");
  Inner::body = [](kb::Builder&, kb::Value x) -> kb::Value {
    if (x.id) throw std::out_of_range("index 7 of 3");
    return x;
  };
  EXPECT_EQ(build(KB_TRAIN, call), "[layers.1.norm.child (norm.inner, tiny.toml:14)] index 7 of 3 (thrown in norm)");
}

TEST_F(Host, says_that_a_slot_is_empty) {
  EXPECT_EQ(build(KB_TRAIN,
                  [&](kb::Builder& b, kb::Value x) {
                    kb::Slot other;
                    other.slot = "other";
                    return b.call(other, 0, {x})[0];
                  }),
            at + "slot 'other' is empty");
}

TEST_F(Host, takes_losses_that_are_scalars_and_reports_of_any_shape) {
  EXPECT_EQ(build(KB_TRAIN,
                  [](kb::Builder& b, kb::Value x) {
                    b.report("load", b.sum(x, 0));
                    b.loss("balance", b.sum(b.sum(x, 0), 0));
                    return x;
                  }),
            "no error");
  EXPECT_TRUE(g->reports.count("layers.1.norm.load"));
  EXPECT_TRUE(g->reports.count("loss.layers.1.norm.balance"));
  EXPECT_EQ(g->losses.size(), 1u);
  EXPECT_EQ(build(KB_TRAIN,
                  [](kb::Builder& b, kb::Value x) {
                    b.loss("balance", x);
                    return x;
                  }),
            at + "the loss 'layers.1.norm.balance' must be a scalar but got f32 [4, 8]");
  EXPECT_EQ(build(KB_TRAIN,
                  [](kb::Builder& b, kb::Value x) {
                    b.report("load", {});
                    return x;
                  }),
            at + "'layers.1.norm.load' is published without a value");
}

TEST_F(Host, says_which_input_a_component_lacks) {
  Body::body = [](kb::Builder&, kb::Value x) { return x; };
  g = bench.graph();
  EXPECT_EQ(error_of([&] { g->build(*component, "layers.1.norm", 0, {}); }), at + "input 0 (x) is missing");
}

TEST_F(Host, keeps_rows_of_different_extents_apart) {
  g = bench.graph();
  kb::Builder b = g->builder();
  const kb::Value t{&b, g->input("t", make_type(KB_F32, {4}, g->extent("tokens")))},
      p{&b, g->input("p", make_type(KB_F32, {4}, g->extent("patches")))};
  EXPECT_EQ(error_of([&] { t + p; }), "[test] op add(f32 [4], f32 [4]): rows belong to different extents (1 and 2)");
}

}  // namespace
}  // namespace kitbash
