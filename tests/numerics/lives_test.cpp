// The table of lives: which graph may write what (abi.h, kb_mode).
#include "lab.h"

namespace kitbash::test {
namespace {

const std::vector<std::string> modes{"train", "eval", "prefill", "decode", "step", "update"};
const std::map<Life, std::vector<uint32_t>> writers{
    {Life::model, {KB_UPDATE}},
    {Life::step, {KB_TRAIN, KB_UPDATE}},
    {Life::optimizer, {KB_STEP}},
    {Life::sequence, {KB_PREFILL, KB_DECODE}},
    {Life::token, {KB_PREFILL, KB_DECODE}},
    {Life::param, {KB_STEP, KB_UPDATE}},
    {Life::accumulator, {KB_TRAIN, KB_STEP}},
};

TEST(Lives, AStateIsWrittenOnlyInTheModesOfItsLife) {
  for (const auto& [life, allowed] : writers)
    for (uint32_t mode = KB_TRAIN; mode <= KB_UPDATE; ++mode) {
      Bench bench;
      StoreEntry e;
      e.name = "layers.3.thing", e.type = make_type(KB_F64, {4}), e.life = life;
      bench.store.declare(e);
      auto g = bench.graph(mode);
      kb::Builder b = g->builder();
      const ValueId old = g->read(e.name);
      const std::string got = error_of([&] { b.write({&b, old}, b.affine({&b, old}, 2, 1)); });
      if (std::count(allowed.begin(), allowed.end(), mode)) {
        EXPECT_EQ(got, "no error") << life_name(life) << " in " << modes[mode];
        EXPECT_EQ(g->writes.size(), 1u);
      } else {
        EXPECT_NE(got.find("layers.3.thing"), std::string::npos) << got;
        EXPECT_NE(got.find(life_name(life)), std::string::npos) << got;
        EXPECT_NE(got.find("mode " + modes[mode]), std::string::npos) << got;
        EXPECT_TRUE(g->writes.empty()) << life_name(life) << " in " << modes[mode];
      }
    }
}

TEST(Lives, AStateExistsOnlyWhereItsLifeIsLived) {
  const std::map<kb_life, std::vector<uint32_t>> homes{
      {KB_STATE_MODEL, {KB_TRAIN, KB_EVAL, KB_PREFILL, KB_DECODE, KB_STEP, KB_UPDATE}},
      {KB_STATE_STEP, {KB_TRAIN, KB_UPDATE}},
      {KB_STATE_OPTIMIZER, {KB_STEP}},
      {KB_STATE_SEQUENCE, {KB_PREFILL, KB_DECODE}},
      {KB_STATE_TOKEN, {KB_PREFILL, KB_DECODE}},
  };
  for (const auto& [life, where] : homes)
    for (uint32_t mode = KB_TRAIN; mode <= KB_UPDATE; ++mode) {
      Bench bench;
      auto g = bench.graph(mode);
      const std::string got = error_of([&, life = life] { g->builder().state("thing", life, {4}); });
      const bool allowed = std::count(where.begin(), where.end(), mode);
      EXPECT_EQ(got == "no error", allowed) << life << " in " << modes[mode] << ": " << got;
      if (!allowed) {
        EXPECT_NE(got.find("'thing'"), std::string::npos) << got;
      }
    }
}

TEST(Lives, AWriteMustFitAndHappenOnce) {
  Bench bench;
  StoreEntry e;
  e.name = "thing", e.type = make_type(KB_F64, {4}), e.life = Life::step;
  bench.store.declare(e);
  auto g = bench.graph(KB_TRAIN);
  kb::Builder b = g->builder();
  const kb::Value old{&b, g->read("thing")};
  EXPECT_NE(error_of([&] { b.write(old, b.zeros({5})); }).find("f64 [4]"), std::string::npos);
  EXPECT_NE(error_of([&] { b.write(b.zeros({4}), old); }).find("only a state"), std::string::npos);
  b.write(old, b.affine(old, 2, 0));
  EXPECT_NE(error_of([&] { b.write(old, b.zeros({4})); }).find("'thing' is written twice"), std::string::npos);
}

}  // namespace
}  // namespace kitbash::test
