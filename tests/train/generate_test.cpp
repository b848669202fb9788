// What generation gives is what the forward of training gives.
#include <cmath>
#include <set>

#include "fixture.h"
#include "kitbash/op.h"
#include "train/generate.h"

namespace kitbash::test {
namespace {

constexpr int64_t kLongest = 40, kVocab = 258;

struct Trained {
  Place place{recipe_text("", 6, 8)};
  Recipe recipe = place.recipe();
  std::string checkpoint = train(recipe, place.run("r")).checkpoint;
};
const Trained& trained() {
  static const Trained t;
  return t;
}

std::vector<int32_t> some_tokens(int64_t n) {
  std::vector<int32_t> ids{256};
  const std::string text = prose(9, 77);
  for (int64_t i = 1; i < n; ++i) ids.push_back(static_cast<unsigned char>(text[size_t(i)]));
  return ids;
}

// Logits of the evaluation forward for every token of one document: [tokens, vocab].
std::vector<std::vector<double>> forward(const std::vector<int32_t>& ids) {
  const Trained& t = trained();
  LanguageModel model(t.recipe, registry());
  Device device(registry(), KB_CPU, 1);
  BuildOptions o;
  o.logits = true;
  Bounds b;
  b.tokens = kLongest, b.documents = 1;
  Program eval(model.eval(b, o), device, ArenaMode::planned);
  StoreMemory memory(model.store);
  load_checkpoint(t.checkpoint, memory, LoadLives::weights);
  Arena arena;
  eval.reserve(arena);
  eval.bind(arena, memory);
  MicroBatch batch;
  batch.tokens = ids, batch.cu = {0, int32_t(ids.size())};
  batch.target.assign(ids.size(), -1), batch.weight.assign(ids.size(), 0);
  batch.used = int64_t(ids.size()), batch.documents = 1;
  feed_batch(eval, batch);
  eval.run();
  std::vector<std::vector<double>> logits(ids.size());
  for (size_t i = 0; i < ids.size(); ++i)
    for (int64_t v = 0; v < kVocab; ++v)
      logits[i].push_back(
          read_element(eval.output("logits"), eval.output_type("logits").dtype, int64_t(i) * kVocab + v));
  return logits;
}

int32_t likeliest(const std::vector<double>& logits) {
  return int32_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

class Pieces : public ::testing::TestWithParam<int64_t> {};

TEST_P(Pieces, TheLikeliestTokenIsThatOfTheForwardAtEveryLength) {
  const auto ids = some_tokens(kLongest);
  const auto want = forward(ids);
  Generator g(trained().recipe, registry(), kLongest + 2, GetParam(), 1);
  g.load(trained().checkpoint);
  double worst = 0;
  for (int64_t n = 1; n <= kLongest; ++n) {
    g.start();
    const auto& prefilled = g.append({ids.begin(), ids.begin() + n});
    EXPECT_EQ(sample_token(prefilled, {0, 1, 0}, n), likeliest(want[size_t(n - 1)])) << "prompt of " << n;
    for (size_t v = 0; v < size_t(kVocab); ++v)
      worst = std::max(worst, std::abs(prefilled[v] - want[size_t(n - 1)][v]));
  }
  g.start();
  for (int64_t n = 1; n <= kLongest; ++n) {
    const auto& decoded = g.append({ids[size_t(n - 1)]});
    EXPECT_EQ(sample_token(decoded, {0, 1, 0}, n), likeliest(want[size_t(n - 1)])) << "decoded to " << n;
    for (size_t v = 0; v < size_t(kVocab); ++v) worst = std::max(worst, std::abs(decoded[v] - want[size_t(n - 1)][v]));
  }
  // A prompt, then tokens one by one.
  g.start();
  g.append({ids.begin(), ids.begin() + 23});
  for (int64_t n = 24; n <= kLongest; ++n)
    EXPECT_EQ(likeliest(g.append({ids[size_t(n - 1)]})), likeliest(want[size_t(n - 1)])) << n;
  EXPECT_LT(worst, 1e-5) << "floats in another order, of logits around 1";
  std::printf("largest difference of a logit: %.2g\n", worst);
}
INSTANTIATE_TEST_SUITE_P(Prefill, Pieces, ::testing::Values(1, 7, 128));

std::string said(Generator& g, const std::string& prompt, int64_t tokens, const SamplingOptions& o) {
  std::string text;
  generate_text(g, prompt, tokens, o, [&](const std::string& s) { text += s; });
  return text;
}

TEST(Generate, AtTemperatureZeroEachTokenIsTheLikeliestOfTheForward) {
  Generator g(trained().recipe, registry(), kLongest, 7, 1);
  g.load(trained().checkpoint);
  const std::string text = said(g, "abc", 30, {0, 0.5, 0});
  std::vector<int32_t> ids = g.tokenizer().encode("abc" + text);
  ids.insert(ids.begin(), 256);
  const auto want = forward(ids);
  for (size_t i = 0; i < text.size(); ++i) EXPECT_EQ(ids[4 + i], likeliest(want[3 + i])) << i;
}

TEST(Generate, TheSameSeedGivesTheSameText) {
  Generator g(trained().recipe, registry(), 80, 7, 1), other(trained().recipe, registry(), 80, 32, 1);
  g.load(trained().checkpoint), other.load(trained().checkpoint);
  const std::string one = said(g, "abc", 60, {1, 0.95, 5});
  EXPECT_EQ(said(g, "abc", 60, {1, 0.95, 5}), one) << "what came before is forgotten";
  EXPECT_EQ(said(other, "abc", 60, {1, 0.95, 5}), one) << "whatever the pieces";
  EXPECT_NE(said(g, "abc", 60, {1, 0.95, 6}), one);
}

TEST(Generate, ASequenceThatOutgrowsItsCapacityIsAnError) {
  Generator g(trained().recipe, registry(), 8, 4, 1);
  g.load(trained().checkpoint);
  g.start();
  g.append(some_tokens(8));
  const std::string text = error_of([&] { g.append({97}); });
  EXPECT_TRUE(contains(text, "8 tokens") && contains(text, "9")) << text;
  EXPECT_TRUE(contains(error_of([&] { g.append({}); }), "at least one token"));
}

TEST(Sampling, StaysInTheSmallestSetWithTheProbability) {
  const std::vector<double> logits{std::log(0.1), std::log(0.4), std::log(0.05), std::log(0.25), std::log(0.2)};
  const auto drawn = [&](double top_p) {
    std::set<int32_t> seen;
    for (uint64_t seed = 0; seed < 40; ++seed)
      for (int64_t position = 0; position < 50; ++position)
        seen.insert(sample_token(logits, {1, top_p, seed}, position));
    return seen;
  };
  EXPECT_EQ(drawn(1e-9), (std::set<int32_t>{1}));
  EXPECT_EQ(drawn(0.39), (std::set<int32_t>{1}));
  EXPECT_EQ(drawn(0.6), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(drawn(0.84), (std::set<int32_t>{1, 3, 4}));
  EXPECT_EQ(drawn(0.94), (std::set<int32_t>{0, 1, 3, 4}));
  EXPECT_EQ(drawn(1), (std::set<int32_t>{0, 1, 2, 3, 4}));
}

TEST(Sampling, HasTheFrequenciesOfTheModel) {
  const std::vector<double> p{0.1, 0.4, 0.05, 0.25, 0.2};
  for (double temperature : {0.5, 1.0, 2.0}) {
    std::vector<double> logits, want(5), got(5);
    double sum = 0;
    for (double x : p) logits.push_back(std::log(x) + 100);
    for (size_t i = 0; i < 5; ++i) sum += want[i] = std::pow(p[i], 1 / temperature);
    constexpr int n = 20000;
    for (int i = 0; i < n; ++i) got[size_t(sample_token(logits, {temperature, 1, 9}, i))] += 1.0 / n;
    // Five standard deviations of a share of one half at most.
    for (size_t i = 0; i < 5; ++i)
      EXPECT_NEAR(got[i], want[i] / sum, 5 * 0.5 / std::sqrt(n)) << temperature << " " << i;
  }
}

TEST(Sampling, TiesGoToTheFirst) { EXPECT_EQ(sample_token({1, 3, 3, 2}, {0, 1, 0}, 0), 1); }

}  // namespace
}  // namespace kitbash::test
