// Accumulation over micro-batches, batches without a counted token, the learning rate, the spike rule.
#include <cmath>
#include <cstring>
#include <limits>

#include "fixture.h"
#include "kitbash/op.h"

namespace kitbash::test {
namespace {

// Documents first .. last - 1.
MicroBatch part(const MicroBatch& b, int64_t first, int64_t last) {
  MicroBatch p;
  p.cu.push_back(0);
  for (int64_t d = first; d < last; ++d) {
    for (auto t = size_t(b.cu[size_t(d)]); t < size_t(b.cu[size_t(d) + 1]); ++t) {
      p.tokens.push_back(b.tokens[t]), p.target.push_back(b.target[t]), p.weight.push_back(b.weight[t]);
      p.counted += b.target[t] >= 0 && b.weight[t] > 0;
    }
    p.cu.push_back(int32_t(p.tokens.size()));
  }
  p.used = int64_t(p.tokens.size()), p.documents = last - first;
  return p;
}

MicroBatch ragged(const std::vector<int64_t>& lengths) {
  MicroBatch b;
  std::mt19937_64 random(5);
  b.cu.push_back(0);
  for (int64_t n : lengths) {
    for (int64_t t = 0; t < n; ++t) b.tokens.push_back(t ? int32_t('a' + random() % 9) : 256);
    for (int64_t t = 0; t < n; ++t) {
      const bool last = t + 1 == n;
      b.target.push_back(last ? -1 : b.tokens[size_t(b.cu.back() + t + 1)]), b.weight.push_back(last ? 0.f : 1.f);
    }
    b.cu.push_back(int32_t(b.tokens.size()));
  }
  return part(b, 0, int64_t(lengths.size()));
}

struct Ready {
  Place place;
  Recipe recipe = place.recipe({"curriculum.1.micro_tokens=128", "curriculum.1.max_documents=8"});
  Session session{recipe, registry(), 1, ArenaMode::planned};
  Ready() {
    session.enter_stage(recipe.curriculum[1]);
    session.init_parameters();
  }
  std::map<std::string, std::vector<double>> sums() {
    std::map<std::string, std::vector<double>> all;
    for (const StoreEntry& e : session.model().store.entries())
      if (e.life == Life::accumulator)
        for (int64_t i = 0; i < kb::elements(e.type); ++i)
          all[e.name].push_back(read_element(session.memory().at(e.name), e.type.dtype, i));
    return all;
  }
  std::map<std::string, std::string> bytes() {
    std::map<std::string, std::string> all;
    for (const StoreEntry& e : session.model().store.entries())
      all[e.name] = std::string(session.memory().at(e.name), size_t(e.bytes()));
    return all;
  }
  void apply() {
    Program& a = session.apply();
    feed_scalar(a, "lr", 1e-2), feed_scalar(a, "step", 1), feed_scalar(a, "loss_limit", 0),
        feed_scalar(a, "norm_limit", 0);
    a.run();
  }
};

TEST(Accumulation, OneTwoAndFourMicroBatchesGiveEqualGradients) {
  Ready r;
  const MicroBatch all = ragged({17, 3, 40, 1, 9, 22, 2, 31});
  std::map<std::string, std::vector<double>> want;
  double worst = 0;
  for (int64_t pieces : {1, 2, 4}) {
    for (int64_t i = 0; i < pieces; ++i) {
      feed_batch(r.session.micro(), part(all, 8 * i / pieces, 8 * (i + 1) / pieces));
      r.session.micro().run();
    }
    const auto got = r.sums();
    r.session.clear_sums();
    if (pieces == 1) {
      want = got;
      ASSERT_GT(want.size(), 30u);
      continue;
    }
    for (const auto& [name, v] : want) {
      double scale = 0;
      for (double x : v) scale = std::max(scale, std::abs(x));
      // Of the largest of its tensor: another order of adding floats.
      for (size_t i = 0; i < v.size(); ++i) {
        const double off = scale > 0 ? std::abs(got.at(name)[i] - v[i]) / scale : std::abs(got.at(name)[i]);
        worst = std::max(worst, off);
        ASSERT_LE(off, 1e-6) << name << "[" << i << "] in " << pieces << " micro-batches";
      }
    }
  }
  std::printf("largest difference: %.2g of the tensor's largest gradient\n", worst);
}

TEST(Accumulation, ABatchWithoutACountedTokenChangesNothing) {
  Ready r;
  const auto before = r.bytes();
  MicroBatch b = ragged({17, 3, 40});
  std::fill(b.weight.begin(), b.weight.end(), 0.f);
  feed_batch(r.session.micro(), b);
  r.session.micro().run();
  for (const auto& [name, v] : r.sums())
    for (double x : v) ASSERT_EQ(x, 0) << name;
  r.apply();
  EXPECT_EQ(r.session.apply().scalar("step_ok"), 0);
  EXPECT_EQ(r.session.apply().scalar("loss"), 0);
  EXPECT_EQ(r.session.apply().scalar("grad_norm"), 0);
  const auto after = r.bytes();
  for (const auto& [name, bytes] : before) EXPECT_TRUE(after.at(name) == bytes) << name;
}

TEST(Accumulation, AMicroBatchWithoutACountedTokenIsNoneOfTheMean) {
  Ready one, two;
  const MicroBatch b = ragged({17, 3, 40});
  MicroBatch silent = ragged({30, 30});
  std::fill(silent.weight.begin(), silent.weight.end(), 0.f);
  for (Ready* r : {&one, &two}) {
    feed_batch(r->session.micro(), b);
    r->session.micro().run();
  }
  feed_batch(two.session.micro(), silent);
  two.session.micro().run();
  EXPECT_EQ(one.sums(), two.sums());
}

TEST(BadNode, APoisonedParameterNamesTheFirstNodeThatReadsIt) {
  Ready r;
  const MicroBatch b = ragged({17, 3, 40});
  EXPECT_EQ(r.session.first_bad_node({b}), std::nullopt);
  const auto clean = r.bytes();
  for (const char* name : {"layers.0.ffn", "layers.1.attn", "layers.2.ffn"}) {
    const StoreEntry* e = nullptr;
    for (const StoreEntry& x : r.session.model().store.entries())
      if (!e && x.life == Life::param && x.name.starts_with(std::string(name) + ".")) e = &x;
    ASSERT_NE(e, nullptr) << name;
    fill_elements(r.session.memory().at(e->name), e->type.dtype, 1, NAN);
    const auto bad = r.session.first_bad_node({b, b});
    ASSERT_TRUE(bad) << e->name;
    const std::string place = std::string("[") + name;
    EXPECT_EQ(bad->substr(0, place.size()), place) << e->name << ": " << *bad;
    std::memcpy(r.session.memory().at(e->name), clean.at(e->name).data(), clean.at(e->name).size());
  }
  const auto after = r.bytes();
  for (const auto& [name, bytes] : clean) EXPECT_TRUE(after.at(name) == bytes) << name;
}

std::vector<double> rates(const std::string& schedule, int64_t steps, double lr, const std::vector<int64_t>& at) {
  const Place p(recipe_text("", steps, 1));
  std::vector<std::string> set{"curriculum.0.lr=" + std::to_string(lr)};
  std::istringstream words(schedule);
  for (std::string word; words >> word;) set.push_back("curriculum.0.schedule." + word);
  const Recipe recipe = p.recipe(set);
  const auto made = create_instance(*recipe.curriculum[0].schedule, registry(), &host_table());
  const auto& table = *static_cast<const kb_schedule*>(service_of(*made->table));
  std::vector<double> r;
  for (int64_t i : at) r.push_back(learning_rate(recipe.curriculum[0], table, made->self, i));
  return r;
}
using Rates = std::vector<double>;

TEST(LearningRate, WsdAtWarmUpBordersAndLastStep) {
  EXPECT_EQ(rates("warmup=0.25 decay=0.5 floor=0.5", 16, 0.5, {0, 1, 2, 3, 4, 7, 8, 9, 14, 15}),
            (Rates{0.125, 0.25, 0.375, 0.5, 0.5, 0.5, 0.46875, 0.4375, 0.28125, 0.25}));
  EXPECT_EQ(rates("warmup=0.0 decay=0.0 floor=0.0", 7, 0.25, {0, 3, 6}), (Rates{0.25, 0.25, 0.25}));
  EXPECT_EQ(rates("warmup=0.0 decay=1.0 floor=0.0", 8, 0.5, {0, 4, 7}), (Rates{0.4375, 0.1875, 0}));
  EXPECT_EQ(rates("warmup=0.25 decay=0.5 floor=0.5", 1, 0.5, {0}), (Rates{0.25}));
}

TEST(LearningRate, StagesAreRoundedUpToWholeSteps) {
  StageConfig s;
  s.batch_tokens = 64;
  for (auto [tokens, steps] : std::vector<std::pair<int64_t, int64_t>>{{1, 1}, {64, 1}, {65, 2}, {128, 2}, {640, 10}}) {
    s.tokens = tokens;
    EXPECT_EQ(stage_steps(s), steps) << tokens;
  }
}

TEST(LearningRate, IsTheOneThatTheStepsHad) {  // over a stage change, from metrics.jsonl
  const Place p(recipe_text("", 5, 4));
  train(p.recipe(), p.run("r"));
  std::vector<double> got;
  for (const std::string& line : metrics(p.run("r")))
    if (const auto j = nlohmann::json::parse(line); j["event"] == "step") got.push_back(j["lr"]);
  const double c1 = 5e-3 * (0.1 + 0.9 * 0.5 * (1 + std::cos(M_PI / 3))),
               c2 = 5e-3 * (0.1 + 0.9 * 0.5 * (1 + std::cos(2 * M_PI / 3)));
  const Rates want{1e-2, 1e-2, 1e-2, 1e-2, 1e-2, 5e-3, c1, c2, 5e-4};  // warm-up: one step, none
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_DOUBLE_EQ(got[i], want[i]) << i;
}

constexpr double inf = std::numeric_limits<double>::infinity();

TEST(Spikes, LimitsBeginWithTheSixtyFourthAcceptedStep) {
  SpikeRule r;
  for (int i = 0; i < 63; ++i) r.accept(i % 2 ? 3 : 1, 2);
  EXPECT_EQ(r.loss_limit(), 0);
  r.accept(3, 2);
  EXPECT_DOUBLE_EQ(r.loss_limit(), 2 + 6);  // mean 2, sigma 1
  EXPECT_DOUBLE_EQ(r.norm_limit(), 2);      // sigma 0: nothing above the mean
}

TEST(Spikes, NothingThatIsNotFiniteEntersTheWindow) {
  for (auto [loss, norm] :
       std::vector<std::pair<double, double>>{{NAN, 1}, {1, NAN}, {inf, 1}, {1, inf}, {-inf, 1}, {NAN, NAN}}) {
    SpikeRule r;
    for (int i = 0; i < 64; ++i) r.accept(1, 1);
    r.accept(loss, norm);
    EXPECT_EQ(r.losses().size(), 64u);
    EXPECT_EQ(r.loss_limit(), 1);
    EXPECT_EQ(r.norm_limit(), 1);
  }
}

TEST(Spikes, TheWindowHasTheLast128) {
  SpikeRule r;
  for (int i = 0; i < 300; ++i) r.accept(i < 172 ? 100 : 1, i);
  EXPECT_EQ(r.losses().size(), 128u);
  EXPECT_EQ(r.loss_limit(), 1);
  EXPECT_EQ(r.norms().front(), 172);
  SpikeRule again;
  again.restore(r.losses(), r.norms());
  EXPECT_EQ(again.norm_limit(), r.norm_limit());
}

TEST(Spikes, ApplyRefusesAboveALimitAndTakesItAtTheLimit) {
  const MicroBatch b = ragged({17, 3, 40});
  double loss = 0, norm = 0;
  struct Case {
    double loss, norm;  // limits over the figures; 0: none
    bool ok;
  };
  for (const Case& c : std::vector<Case>{{0, 0, true},
                                         {1, 0, true},
                                         {0, 1, true},
                                         {1, 1, true},
                                         {1.01, 1.01, true},
                                         {0.99, 0, false},
                                         {0, 0.99, false},
                                         {0.99, 2, false},
                                         {2, 0.99, false}}) {
    Ready r;
    feed_batch(r.session.micro(), b);
    r.session.micro().run();
    Program& a = r.session.apply();
    const auto before = r.bytes();
    feed_scalar(a, "lr", 1e-2), feed_scalar(a, "step", 1);
    feed_scalar(a, "loss_limit", c.loss * loss), feed_scalar(a, "norm_limit", c.norm * norm);
    a.run();
    EXPECT_EQ(a.scalar("step_ok") != 0, c.ok) << c.loss << " " << c.norm;
    loss = a.scalar("loss"), norm = a.scalar("grad_norm");
    const auto after = r.bytes();
    for (const StoreEntry& e : r.session.model().store.entries()) {
      if (c.ok || e.life == Life::accumulator || e.life == Life::step) continue;
      EXPECT_TRUE(after.at(e.name) == before.at(e.name)) << e.name;
    }
    for (const auto& [name, v] : r.sums())
      for (double x : v) ASSERT_EQ(x, 0) << name << " is for the next step";
  }
}

}  // namespace
}  // namespace kitbash::test
