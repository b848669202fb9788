// A parameter that the model reads in bf16 has a wide master. The CPU has no bf16 kernels, so this looks at the store and the
// checkpoint alone: one tensor on disk, the master, whatever the model computes in.
#include "fixture.h"
#include "kitbash/op.h"

namespace kitbash::test {
namespace {

StoreEntry entry(const std::string& name, uint32_t dtype, Life life) {
  StoreEntry e;
  e.name = name, e.type = make_type(dtype, {3, 2}), e.life = life;
  return e;
}
const std::vector<float> kNumbers{1, 1.00390625f, -3.14159274f, 0, 65536.5f, 1e-20f};

// A store of a model in f32, in bf16 with masters, or in bf16 without (serving).
struct Kept {
  Store store;
  StoreMemory memory{store};
  Kept(uint32_t dtype, bool masters) {
    store.declare(entry("w", dtype, Life::param));
    if (masters) store.declare(entry(master_name("w"), KB_F32, Life::optimizer));
    if (masters || dtype == KB_F32) store.declare(entry("opt.w.m", KB_F32, Life::optimizer));
    memory.allocate();
  }
  double at(const std::string& name, int64_t i) {
    return read_element(memory.at(name), store.find(name)->type.dtype, i);
  }
};

std::string save(Kept& k, const Place& p, const std::string& run) {
  CheckpointInfo info;
  info.position.step = 1;
  return CheckpointFolder(p.run(run)).save(k.memory, info);
}

TEST(Master, is_what_a_checkpoint_holds_and_both_come_back) {
  const Place p;
  Kept bf16(KB_BF16, true), wide(KB_F32, false);
  bf16.memory.write(master_name("w"), kNumbers.data(), 0, 24);
  wide.memory.write("w", kNumbers.data(), 0, 24);
  const std::string a = save(bf16, p, "bf16"), b = save(wide, p, "wide");
  EXPECT_EQ(joined(diff_checkpoints(a, b)), "") << "the same file, whatever the model computes in";
  for (const std::string& from : {a, b}) {
    Kept again(KB_BF16, true);
    load_checkpoint(from, again.memory);
    Kept served(KB_BF16, false);
    load_checkpoint(from, served.memory, LoadLives::weights);
    Kept single(KB_F32, false);
    load_checkpoint(from, single.memory);
    for (int64_t i = 0; i < 6; ++i) {
      EXPECT_EQ(again.at(master_name("w"), i), double(kNumbers[size_t(i)]));
      EXPECT_EQ(single.at("w", i), double(kNumbers[size_t(i)]));
      const uint16_t rounded = to_bf16(kNumbers[size_t(i)]);
      EXPECT_EQ(again.at("w", i), read_element(&rounded, KB_BF16, 0));
      EXPECT_EQ(served.at("w", i), again.at("w", i));
    }
  }
}

TEST(Master, rounding_is_to_nearest_with_ties_to_even) {
  EXPECT_EQ(to_bf16(1.f), 0x3f80);
  EXPECT_EQ(to_bf16(1.00390625f), 0x3f80);  // half way between 0x3f80 and 0x3f81
  EXPECT_EQ(to_bf16(1.01171875f), 0x3f82);  // half way between 0x3f81 and 0x3f82
  EXPECT_EQ(to_bf16(3.4e38f), 0x7f80);      // past the largest: infinite
  EXPECT_EQ(to_bf16(-INFINITY), 0xff80);
  EXPECT_EQ(to_bf16(NAN) & 0x7fff, 0x7fff);
}

// What bf16 training is made of, without running it.
TEST(Master, every_narrow_parameter_has_one_that_init_and_apply_write) {
  const Place p;
  const Recipe recipe = p.recipe({"train.compute=bf16"});
  LanguageModel model(recipe, registry());
  BuildOptions o;
  o.compute = KB_BF16;
  Bounds b;
  b.tokens = 32, b.documents = 2;
  model.micro(b, o);
  const auto apply = model.apply(o);
  const auto init = model.init(o);
  auto writes = [](const Graph& g, const std::string& name) {
    for (const Write& w : g.writes)
      if (w.name == name) return g.type(w.value).dtype;
    return uint32_t(KB_NONE);
  };
  int narrow = 0;
  for (const StoreEntry& e : model.store.entries()) {
    if (e.life != Life::param || e.type.dtype != KB_BF16) continue;
    ++narrow;
    const StoreEntry* master = model.store.find(master_name(e.name));
    ASSERT_NE(master, nullptr) << e.name;
    EXPECT_EQ(master->type.dtype, KB_F32);
    for (const Graph* g : {apply.get(), init.get()}) {
      EXPECT_EQ(writes(*g, e.name), KB_BF16) << g->name << " " << e.name;
      EXPECT_EQ(writes(*g, master->name), KB_F32) << g->name << " " << e.name;
    }
    ASSERT_NE(model.store.find("grad." + e.name), nullptr);
    EXPECT_EQ(model.store.find("grad." + e.name)->type.dtype, KB_F32) << "gradients are gathered wide";
  }
  EXPECT_GT(narrow, 10);
}

}  // namespace
}  // namespace kitbash::test
