// What nobody reads is not computed, and kernels run without the outputs that nobody wants.
#include "fixture.h"

namespace kitbash::test {
namespace {

// Buffers of output `index` of every node of the op that runs.
int64_t kept(const Program& p, const char* op, size_t index) {
  int64_t n = 0;
  for (NodeId id : p.plan().order) {
    const Node& node = p.graph().nodes[id];
    if (node.is(op)) n += p.plan().buffer_of[node.out.at(index)] >= 0;
  }
  return n;
}

TEST(Unwanted, EvaluationHasNoBackwardAndNoStatistics) {
  Lab lab(recipe_text(hybrid(block_attnres)));
  const Batch batch = documents({9, 20}, 19);
  Program &micro = lab.micro(Lab::bounds(batch)), &eval = lab.eval(Lab::bounds(batch));
  for (const char* op : {"kda_backward", "attention_backward", "cross_entropy_backward", "rms_norm_backward",
                         "quantile_count", "expert_load", "grouped_outer"}) {
    EXPECT_TRUE(runs(micro, op)) << op;
    EXPECT_FALSE(runs(eval, op)) << op;
  }
}

TEST(Unwanted, OutputsHaveNoBuffer) {
  Lab lab(recipe_text(hybrid(standard)));
  const Batch batch = documents({9, 20}, 19);
  Program &micro = lab.micro(Lab::bounds(batch)), &eval = lab.eval(Lab::bounds(batch));
  enum { lse = 1, peak = 2, state = 1 };
  EXPECT_EQ(kept(eval, "attention", lse), 0);
  EXPECT_EQ(kept(eval, "attention", peak), 0);
  EXPECT_EQ(kept(eval, "kda", state), 0);
  EXPECT_EQ(kept(eval, "cross_entropy", lse), 0);
  EXPECT_EQ(kept(micro, "attention", lse), 2);
  EXPECT_EQ(kept(micro, "attention", peak), 2);
  EXPECT_EQ(kept(micro, "kda", state), 0);
  EXPECT_EQ(kept(micro, "kda_backward", 5), 0);  // the gradient of a state that is not there
  Lab no_clip(
      recipe_text("dim = 12\nlayers = 1\nvocab = 19\nresidual = \"standard\"\n[model.layer.one]\nattention = { use = "
                  "\"gated-mla\", qk_clip = 0 }\nffn = \"dense\"\n"));
  EXPECT_EQ(kept(no_clip.micro(Lab::bounds(batch)), "attention", peak), 0);
}

// The loss sum(w * f(x...)) of a block; the gradient of one operand while the others are detached, so that the backward
// kernel gets null for theirs, must be the one that it has among all.
struct Operand {
  const char* name;
  std::vector<int64_t> shape;
  double low = 0;  // below 0: made negative, as log decays are
};
using Block = std::function<kb::Value(kb::Builder&, const kb::Values&, kb::Value cu)>;
struct Case {
  const char *name, *backward;
  std::vector<Operand> operands;
  Block block;
};

std::vector<Case> cases() {
  return {
      {"kda",
       "kda_backward",
       {{"q", {20, 2, 5}},
        {"k", {20, 2, 5}},
        {"v", {20, 2, 3}},
        {"g", {20, 2, 5}, -1},
        {"beta", {20, 2}},
        {"s0", {2, 2, 5, 3}}},
       [](kb::Builder& b, const kb::Values& x, kb::Value cu) {
         return b.emit_n("kda", {x[0], x[1], x[2], x[3], x[4], cu, x[5]}, {{"scale", 0.5}})[0];
       }},
      {"kda_state",
       "kda_backward",
       {{"k", {20, 2, 5}}, {"v", {20, 2, 3}}, {"g", {20, 2, 5}, -1}, {"beta", {20, 2}}, {"s0", {2, 2, 5, 3}}},
       [](kb::Builder& b, const kb::Values& x, kb::Value cu) {
         return b.emit_n("kda", {x[0], x[0], x[1], x[2], x[3], cu, x[4]}, {{"scale", 0.5}})[1];
       }},
      {"attention",
       "attention_backward",
       {{"q", {20, 2, 5}}, {"k", {20, 2, 5}}, {"v", {20, 2, 3}}},
       [](kb::Builder& b, const kb::Values& x, kb::Value cu) {
         return b.attention(x[0], x[1], x[2], cu, 0.4, true)[0];
       }},
      {"short_conv",
       "short_conv_backward",
       {{"x", {20, 6}}, {"w", {6, 4}}},
       [](kb::Builder& b, const kb::Values& x, kb::Value cu) {
         kb::Sequence s;
         s.cu = cu;
         return b.short_conv(x[0], x[1], s)[0];
       }},
      {"rms_norm",
       "rms_norm_backward",
       {{"x", {20, 6}}, {"w", {6}}},
       [](kb::Builder& b, const kb::Values& x, kb::Value) { return b.rms_norm(x[0], x[1], 1e-5); }},
      {"depth_mix",
       "",
       {{"first", {20, 6}}, {"second", {20, 6}}, {"norm", {6}}, {"query", {6}}},
       [](kb::Builder& b, const kb::Values& x, kb::Value) {
         return b.emit_n("depth_mix", x, {{"eps", 1e-5}})[0];
       }},
  };
}

Named gradients_of(const Case& c, size_t only) {  // only: this operand; past the last: all
  Bench bench;
  auto g = bench.graph(KB_TRAIN);
  kb::Builder b = g->builder();
  kb::Values all, used;
  std::vector<ValueId> want;
  for (size_t i = 0; i < c.operands.size(); ++i) {
    kb_type t = make_type(KB_F64, c.operands[i].shape);
    if (c.operands[i].low < 0) t.lo = -3, t.hi = 0;
    all.push_back({&b, g->input(c.operands[i].name, t)});
    const bool wanted = only >= c.operands.size() || i == only;
    used.push_back(wanted ? all.back() : b.detach(all.back()));
    if (wanted) want.push_back(all.back().id);
  }
  const kb::Value cu{&b, g->input("cu", make_type(KB_I32, {3}))};
  const kb::Value y = c.block(b, used, cu);
  const kb::Value weight{&b, g->input("weight", y.type())};
  kb::Value loss = b.sum(b.reshape(y * weight, {-1}), 0);
  const auto d = differentiate(*g, loss.id, want);
  for (size_t i = 0; i < c.operands.size(); ++i)
    if (auto at = d.find(all[i].id); at != d.end()) g->output(c.operands[i].name, at->second);
  Program& p = bench.ready(std::move(g)).program;
  if (*c.backward) {
    EXPECT_TRUE(runs(p, c.backward));
  }
  uint64_t seed = 0;
  auto feed = [&](const std::string& name, bool negative) {
    if (!p.graph().inputs.count(name)) return;
    const kb_type& t = p.graph().type(p.graph().inputs.at(name));
    Numbers v = normal(size_t(kb::elements(t)), ++seed, 0.5);
    for (double& x : v)
      if (negative) x = -std::min(3.0, std::abs(x));
    put(p.input(name), t, v);
  };
  for (const Operand& o : c.operands) feed(o.name, o.low < 0);
  feed("weight", false);
  const int32_t borders[3] = {0, 7, 20};
  std::memcpy(p.input("cu"), borders, sizeof borders);
  p.run();
  Named out;
  for (const auto& [name, v] : p.graph().outputs) out[name] = numbers(p.graph().type(v), p.output(name));
  return out;
}

TEST(Unwanted, GradientsMayBeAskedForOneByOne) {
  for (const Case& c : cases()) {
    const Named all = gradients_of(c, c.operands.size());
    ASSERT_EQ(all.size(), c.operands.size()) << c.name;
    for (size_t i = 0; i < c.operands.size(); ++i) {
      const Named one = gradients_of(c, i);
      ASSERT_EQ(one.size(), 1u) << c.name;
      EXPECT_GT(norm(all.at(c.operands[i].name)), 1e-6) << c.name << " " << c.operands[i].name;
      EXPECT_LT(error(one.begin()->second, all.at(c.operands[i].name)), 1e-14) << c.name << " " << c.operands[i].name;
    }
  }
}

}  // namespace
}  // namespace kitbash::test
