// Prefill in pieces and decode give the logits of evaluation at every position, and leave other sequences alone.
#include "fixture.h"

namespace kitbash::test {
namespace {

std::string only(const std::string& attention) {
  return "dim = 12\nlayers = 2\nvocab = 19\nresidual = \"standard\"\n[model.layer.one]\nattention = " + attention +
         "\nffn = { use = \"latent-moe\", experts = 5, active = 2, latent = 6, width = 7, shared = 6 }\n";
}
const std::string kda_bounded = only(R"({ use = "kda", heads = 2, head_dim = 5, conv = 4 })");
const std::string kda_softplus = only(R"({ use = "kda", heads = 2, head_dim = 8, conv = 1, decay = "softplus" })");
const std::string mla =
    only(R"({ use = "gated-mla", heads = 3, q_rank = 5, kv_rank = 6, nope_dim = 4, rope_dim = 2, v_dim = 3 })");

class Serving : public ::testing::TestWithParam<std::string> {};

TEST_P(Serving, PrefillInPiecesAndDecodeGiveTheLogitsOfEvaluation) {
  Lab lab(recipe_text(GetParam()));
  lab.randomize();
  const Batch all = documents({41, 7, 90, 23}, 19, 11);
  Program& eval = lab.eval(Lab::bounds(all));
  Lab::run(eval, all);
  const Numbers want = Lab::logits(eval, all.size());

  Bounds piece, single;
  piece.tokens = 48, piece.documents = 5;  // one document and some tokens more than are ever used
  single.tokens = 4, single.documents = 4;
  piece.slots = single.slots = 7, piece.capacity = single.capacity = 90;
  Program &prefill = lab.serve(false, piece), &decode = lab.serve(true, single);
  const std::vector<int32_t> slot_of{5, 0, 3, 6};  // 1, 2, 4 belong to nobody

  // Other sequences, as if they had been running.
  uint64_t seed = 100;
  std::vector<std::string> states = lab.names(Life::sequence);
  for (const std::string& n : lab.names(Life::token)) states.push_back(n);
  for (const std::string& n : states) {
    const kb_type t = lab.model.store.find(n)->type;
    Numbers v = normal(size_t(kb::elements(t)), ++seed);
    const size_t row = v.size() / 7;
    for (int32_t s : slot_of) std::fill_n(v.begin() + std::ptrdiff_t(size_t(s) * row), row, 0.0);
    lab.set(n, v);
  }
  ASSERT_FALSE(states.empty());
  const Snapshot before = lab.snapshot({Life::sequence, Life::token});

  const auto vocab = size_t(19);
  std::vector<int32_t> done(4, 0);
  Numbers got(want.size(), 0);
  auto advance = [&](Program& p, const std::vector<std::pair<int, int>>& pieces) {  // document, tokens
    Batch b;
    std::vector<int32_t> past, slot, from;
    for (auto [d, n] : pieces) {
      for (int t = 0; t < n; ++t) from.push_back(all.cu[size_t(d)] + done[size_t(d)] + t);
      past.push_back(done[size_t(d)]), slot.push_back(slot_of[size_t(d)]);
      b.cu.push_back(int32_t(from.size()));
      done[size_t(d)] += n;
      ASSERT_LE(done[size_t(d)], all.cu[size_t(d) + 1] - all.cu[size_t(d)]);
    }
    for (int32_t t : from) b.tokens.push_back(all.tokens[size_t(t)]);
    b.target.assign(b.tokens.size(), 0), b.weight.assign(b.tokens.size(), 0);
    // Unused sequences name a slot that is somebody else's.
    slot.resize(size_t(kb::elements(p.graph().type(p.graph().inputs.at("slot")))), 1);
    past.resize(slot.size(), 0);
    Lab::feed(p, b, past, slot);
    p.run();
    const Numbers l = Lab::logits(p, b.size());
    for (size_t r = 0; r < from.size(); ++r)
      std::copy_n(l.begin() + std::ptrdiff_t(r * vocab), vocab, got.begin() + std::ptrdiff_t(size_t(from[r]) * vocab));
  };
  advance(prefill, {{0, 17}, {2, 31}});        // longer than the taps and than a chunk
  advance(prefill, {{2, 2}, {1, 3}, {0, 1}});  // shorter than the taps
  advance(prefill, {{3, 16}, {0, 16}, {1, 1}});
  advance(decode, {{0, 1}, {1, 1}, {2, 1}, {3, 1}});
  advance(decode, {{3, 1}, {1, 1}});    // not all of them, another order
  advance(prefill, {{2, 40}, {3, 4}});  // prefill after decode
  while (done[0] < 41 || done[1] < 7 || done[2] < 90 || done[3] < 23) {
    std::vector<std::pair<int, int>> left;
    for (int d : {2, 0, 3, 1})
      if (done[size_t(d)] < all.cu[size_t(d) + 1] - all.cu[size_t(d)]) left.emplace_back(d, 1);
    advance(decode, left);
  }
  for (int64_t t = 0; t < all.size(); ++t) {
    const auto at = std::ptrdiff_t(size_t(t) * vocab);
    EXPECT_LT(
        error(Numbers(got.begin() + at, got.begin() + at + 19), Numbers(want.begin() + at, want.begin() + at + 19)),
        1e-10)
        << "token " << t;
  }
  for (const auto& [name, now] : lab.snapshot({Life::sequence, Life::token})) {
    const size_t row = now.size() / 7;
    for (size_t s : {1, 2, 4})
      EXPECT_TRUE(!now.compare(s * row, row, before.at(name), s * row, row)) << name << " of slot " << s << " changed";
    EXPECT_FALSE(!now.compare(5 * row, row, before.at(name), 5 * row, row)) << name << " of slot 5 was never written";
  }
}
INSTANTIATE_TEST_SUITE_P(Attentions, Serving,
                         ::testing::Values(kda_bounded, kda_softplus, mla, hybrid(standard), hybrid(block_attnres)));

}  // namespace
}  // namespace kitbash::test
