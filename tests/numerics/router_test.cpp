// Quantile balancing: who is chosen, what is counted, and what the bias becomes.
#include "fixture.h"

namespace kitbash::test {
namespace {

constexpr int64_t experts = 8, active = 3;

// The router from given scores, in training, then its update.
class Chooser : public Bench {
 public:
  explicit Chooser(const std::vector<std::string>& set = {}) { load("router", "quantile", set); }
  static constexpr kb_attr attrs[2] = {{"experts", KB_INT, 1, {experts}}, {"active", KB_INT, 1, {active}}};

  struct Chosen {
    Numbers ids, weights;
  };
  // unused: rows at the end that belong to no document, with scores that would win.
  Chosen choose(const Numbers& scores, int64_t unused = 0, uint32_t mode = KB_TRAIN) {
    const int64_t used = int64_t(scores.size()) / experts, n = used + unused;
    auto g = graph(mode);
    kb::Builder b = g->builder();
    const kb::Value s{&b, g->input("scores", make_type(KB_F64, {n, experts}))};
    const kb::Value d{&b, g->input("document", make_type(KB_I32, {n}))};
    const kb::Values out = g->build(*instance, "router", 1, {s, d}, attrs, 2);
    g->output("ids", out[0].id), g->output("weights", out[1].id);
    Program& p = ready(std::move(g)).program;
    Numbers all = scores;
    for (int64_t i = 0; i < unused * experts; ++i) all.push_back(0.9 + 0.01 * double(i % 7));
    put(p.input("scores"), make_type(KB_F64, {n, experts}), all);
    for (int64_t t = 0; t < n; ++t) static_cast<int32_t*>(p.input("document"))[t] = t < used ? 0 : -1;
    p.run();
    Chosen c{numbers(p.output_type("ids"), p.output("ids")), numbers(p.output_type("weights"), p.output("weights"))};
    c.ids.resize(size_t(used * active)), c.weights.resize(size_t(used * active));
    return c;
  }
  Numbers update() {
    auto g = graph(KB_UPDATE);
    g->build(*instance, "router", 0, {}, attrs, 2);
    ready(std::move(g)).program.run();
    return stored("router.bias");
  }
};

Numbers scores(int64_t tokens, uint64_t seed) {  // in (0, 1), skewed towards low ids
  Numbers v = normal(size_t(tokens * experts), seed);
  for (size_t i = 0; i < v.size(); ++i) v[i] = 1 / (1 + std::exp(-v[i] + 0.3 * double(i % experts)));
  return v;
}

TEST(Router, GivesTiesToTheLowerId) {
  Chooser r;
  r.choose(scores(1, 1));  // makes the states
  r.set("router.bias", {0, 0, 0.25, 0, 0, 0, 0, 0});
  const Chooser::Chosen c = r.choose({0.5, 0.5,   0.5,  0.5, 0.5,  0.5,  0.5,  0.5,      // the bias, then 0, 1
                                      0.5, 0.5,   0.25, 0.5, 0.5,  0.5,  0.5,  0.5,      // equal with the bias: 0, 1, 2
                                      0,   0.125, 0,    0.5, 0.25, 0.25, 0.25, 0.125});  // 3, then 2 (0 + 0.25), 4
  EXPECT_EQ(c.ids, (Numbers{2, 0, 1, 0, 1, 2, 3, 2, 4}));
  const Numbers w(c.weights.begin() + 6, c.weights.end());  // raw scores, without the bias
  EXPECT_LT(error(w, {0.5 / 0.75, 0, 0.25 / 0.75}), 1e-15);
}

// The definition, from the scores: for every expert the needed biases of all tokens, sorted, and the one of this rank.
Numbers exact_bias(const Numbers& s, const Numbers& bias, int64_t rank) {
  const auto tokens = int64_t(s.size()) / experts;
  Numbers out(experts);
  std::vector<Numbers> margin(experts);
  for (int64_t t = 0; t < tokens; ++t) {
    Numbers biased(experts);
    for (int64_t e = 0; e < experts; ++e) biased[size_t(e)] = s[size_t(t * experts + e)] + bias[size_t(e)];
    std::sort(biased.rbegin(), biased.rend());
    for (int64_t e = 0; e < experts; ++e) margin[size_t(e)].push_back(s[size_t(t * experts + e)] - biased[active]);
  }
  double mean = 0;
  for (int64_t e = 0; e < experts; ++e) {
    std::sort(margin[size_t(e)].rbegin(), margin[size_t(e)].rend());
    out[size_t(e)] = -margin[size_t(e)][size_t(rank)];
    mean += out[size_t(e)] / experts;
  }
  for (double& b : out) b -= mean;
  return out;
}

TEST(Router, BiasFromSeveralMicroBatchesEqualsThatFromAllTokensAtOnce) {
  constexpr int64_t tokens = 96;
  const Numbers s = scores(tokens, 2), start = normal(experts, 3, 0.05);
  // q = 96 * 3 / 8 = 36: exact takes the 37th smallest (README), the histogram the end of the 36th.
  const Numbers want = exact_bias(s, start, 36), last_inside = exact_bias(s, start, 35);
  for (const std::string estimator : {"exact", "histogram"}) {
    Numbers first;
    for (const std::vector<int64_t>& cut : {std::vector<int64_t>{96}, {40, 32, 24}, {1, 95}, {48, 0, 48}}) {
      Chooser r({"estimator=" + estimator, "capacity=96"});
      r.choose(scores(1, 1));
      for (const StoreEntry& e : r.store.entries()) r.memory.fill(e.name);
      r.set("router.bias", start);
      int64_t at = 0;
      for (int64_t n : cut) {
        r.choose(Numbers(s.begin() + at * experts, s.begin() + (at + n) * experts), 5);
        at += n;
      }
      const Numbers load = r.stored("router.load");
      EXPECT_EQ(std::accumulate(load.begin(), load.end(), 0.0), double(tokens * active)) << estimator;
      const Numbers bias = r.update();
      EXPECT_NEAR(std::accumulate(bias.begin(), bias.end(), 0.0), 0, 1e-14) << estimator;
      if (first.empty()) first = bias;
      EXPECT_EQ(bias, first) << estimator << " depends on the partition";
      if (estimator == "exact") {
        EXPECT_LT(error(bias, want), 1e-14);
      } else {
        const auto [lo, hi] = std::minmax_element(start.begin(), start.end());
        for (size_t e = 0; e < experts; ++e)  // a bin for the value, one for the centring
          EXPECT_NEAR(bias[e], last_inside[e], 2 * (*hi - *lo + 2) / 1000) << e;
      }
    }
  }
}

TEST(Router, BiasBalancesTheLoadOfTheSameTokens) {
  const Numbers s = scores(400, 4);
  Chooser r;
  r.choose(s);
  const Numbers before = r.stored("router.load");
  r.update();
  r.memory.fill("router.load"), r.memory.fill("router.counts");
  r.choose(s);
  const Numbers after = r.stored("router.load");
  const double even = 400.0 * active / experts;
  EXPECT_GT(*std::max_element(before.begin(), before.end()), 1.4 * even);
  EXPECT_LT(*std::max_element(after.begin(), after.end()), 1.15 * even);
}

TEST(Router, IsNotTouchedByEvaluation) {
  Lab lab(recipe_text(hybrid(standard)));
  lab.randomize();
  const Batch batch = documents({9, 20}, 19);
  Program &micro = lab.micro(Lab::bounds(batch)), &apply = lab.apply(), &eval = lab.eval(Lab::bounds(batch));
  Lab::run(micro, batch);
  Lab::step(apply, 0);
  Lab::run(micro, batch);  // statistics of the next step are under way
  const Snapshot before = lab.snapshot();
  EXPECT_GT(norm(lab.stored("layers.1.ffn.router.bias")), 1e-3);
  EXPECT_GT(norm(lab.stored("layers.1.ffn.router.counts")), 1);
  Lab::run(eval, batch);
  EXPECT_EQ(lab.snapshot(), before);
  EXPECT_TRUE(eval.graph().writes.empty());
}

TEST(Router, ExpertWithoutTokensHasZeroGradients) {
  Lab lab(recipe_text(hybrid(standard)));
  lab.randomize();
  const Batch batch = documents({9, 20}, 19);
  Program &micro = lab.micro(Lab::bounds(batch)), &eval = lab.eval(Lab::bounds(batch));
  lab.set("layers.1.ffn.router.bias", {0, 0, -10, 0, -10});
  Lab::run(micro, batch);
  const Named g = lab.gradients();
  for (const auto& [name, v] : g) EXPECT_TRUE(finite(v)) << name;
  EXPECT_EQ(lab.stored("layers.1.ffn.router.load")[2], 0);
  for (const char* w : {"w1", "w2", "w3"}) {
    const Numbers& v = g.at(std::string("grad.layers.1.ffn.") + w);
    const size_t one = v.size() / 5;
    for (size_t e = 0; e < 5; ++e) {
      const double size = norm(Numbers(v.begin() + std::ptrdiff_t(e * one), v.begin() + std::ptrdiff_t((e + 1) * one)));
      EXPECT_EQ(size == 0, e == 2 || e == 4) << w << " of expert " << e << ": " << size;
    }
  }
  // All to two experts, so that the others' segments are empty in every product.
  Program& apply = lab.apply();
  Lab::step(apply, 1e-3);
  EXPECT_EQ(apply.scalar("step_ok"), 1);
  Lab::run(eval, batch);
  EXPECT_TRUE(std::isfinite(eval.scalar("loss")));
}

TEST(Router, RecomputeLeavesGradientsAndHistogramsAsTheyAre) {
  for (const std::string estimator : {"histogram", "exact"}) {
    Named gradients, counted, biases;
    for (const char* recompute : {"none", "block"}) {
      Lab lab(recipe_text(
          hybrid(block_attnres, "{ use = \"quantile\", capacity = 128, estimator = \"" + estimator + "\" }"),
          "use = \"adamw\"", "recompute = \"" + std::string(recompute) + "\""));
      lab.randomize();
      const Batch batch = documents({9, 20, 33}, 19);
      Program &micro = lab.micro(Lab::bounds(batch)), &apply = lab.apply();
      Lab::run(micro, batch), Lab::run(micro, batch);
      const Named g = lab.gradients(), c = lab.stored(Life::step);
      Lab::step(apply, 0);
      const Named b = lab.stored(Life::model);
      if (gradients.empty()) {
        gradients = g, counted = c, biases = b;
        const Numbers load = c.at("layers.1.ffn.router.load");
        EXPECT_EQ(std::accumulate(load.begin(), load.end(), 0.0), 2.0 * 62 * 2);  // two runs, two experts a token
        continue;
      }
      int64_t again = 0;
      for (const Node& n : micro.graph().nodes) again += n.phase == Phase::recompute;
      EXPECT_GT(again, 0);
      EXPECT_LT(error(g, gradients), 1e-12);
      EXPECT_EQ(c, counted);
      EXPECT_EQ(b, biases);
    }
  }
}

}  // namespace
}  // namespace kitbash::test
