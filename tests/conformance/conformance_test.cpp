// Every component of every plugin found: it builds in all types, its ranges hold, and keys at their ends work or say why not.
#include "../numerics/fixture.h"
#include "surrounding.h"

namespace kitbash::test {
namespace {

std::vector<std::string> components() {
  std::vector<std::string> ids;
  for (const std::string& kind : registry().catalog().kinds())
    for (const ComponentInfo* c : registry().catalog().of_kind(kind)) ids.push_back(c->id());
  return ids;
}

class Conformance : public ::testing::TestWithParam<std::string> {
 protected:
  std::string kind() const { return GetParam().substr(0, GetParam().find('.')); }
  std::string name() const { return GetParam().substr(GetParam().find('.') + 1); }
  uint32_t train_mode() const { return kind() == "optimizer" ? KB_STEP : KB_TRAIN; }
  const ComponentInfo& info() const { return *registry().catalog().find(kind(), name()); }

  std::vector<std::string> needed() const {  // something for every key that has no default
    std::vector<std::string> set;
    for (const FieldInfo& f : info().fields)
      if (f.required)
        set.push_back(f.name + "=" +
                      (f.type == "ints" || f.type == "floats" ? "[1]"
                       : f.type == "int" || f.type == "float" ? "1"
                                                              : "some"));
    return set;
  }
  bool is_graph() const { return registry().component(info()).build != nullptr; }
  // What a component that is no graph offers. Tokenizers and sources read files and have tests of their own.
  void use_service(const Instance& c) const {
    if (!service_of(*c.table)) kb::fail("[", GetParam(), "] a component that is no graph must have a service");
    if (kind() == "schedule") use_schedule(c);
  }
  // The factor of a schedule at the start, inside and at the end of long and short runs.
  static void use_schedule(const Instance& c) {
    const auto* s = static_cast<const kb_schedule*>(c.table->service);
    if (!s) kb::fail("a schedule must have its service");
    for (int64_t steps : {1, 2, 10, 1000})
      for (int64_t step = 0; step < steps; ++step)
        if (const double f = s->at(c.self, step, steps); !(f >= 0 && f <= 1))
          kb::fail("the factor is ", f, " at step ", step, " of ", steps);
  }
  void build(Surrounding& s) {
    s.build();
    if (kind() != "optimizer") s.differentiate_all();
  }
};

TEST_P(Conformance, BuildsInAllFloatTypesWithGradients) {
  for (uint32_t compute : {KB_F32, KB_F64, KB_BF16}) {
    Bench bench(compute);
    bench.load(kind(), name(), needed());
    if (!bench.instance->table->build) return use_service(*bench.instance);
    Surrounding s(bench, train_mode());
    ASSERT_EQ(error_of([&] { build(s); }), "no error") << kb::dtype_name(compute);
    ASSERT_FALSE(s.outputs.empty());
    EXPECT_TRUE(s.without.empty()) << s.without.front() << " has no gradient";
    for (const StoreEntry& e : bench.store.entries())
      if (e.life == Life::param) {
        EXPECT_TRUE(e.type.dtype == compute || e.type.dtype == s.graph->resolve(KB_WIDE))
            << e.name << " " << type_text(e.type);
      }
  }
}

TEST_P(Conformance, RunsWithFiniteNumbersInsideItsRanges) {
  if (!is_graph()) return;
  for (uint32_t compute : {KB_F32, KB_F64})
    for (Check check : {Check::finite, Check::range}) {
      Bench bench(compute);
      bench.load(kind(), name(), needed());
      Surrounding s(bench, train_mode());
      build(s);
      Program& p = bench.ready(std::move(s.graph), ArenaMode::poison, false).program;
      Surrounding::fill(p, bench);
      EXPECT_EQ(p.run(check).value_or(""), "");
      for (const auto& [out, v] : p.graph().outputs) {
        const Numbers n = numbers(p.graph().type(v), p.output(out));
        EXPECT_TRUE(finite(n)) << out;
        EXPECT_GT(norm(n), 0) << out << " is zero";
      }
    }
}

TEST_P(Conformance, ServesInAllFloatTypes) {
  for (uint32_t compute : {KB_F32, KB_F64, KB_BF16})
    for (uint32_t mode : {KB_EVAL, KB_PREFILL, KB_DECODE}) {
      if (!is_graph() || kind() == "optimizer" || (kind() == "objective" && mode != KB_EVAL)) continue;
      Bench bench(compute);
      bench.options.slots = 3, bench.options.capacity = 12;
      bench.load(kind(), name(), needed());
      Surrounding s(bench, mode);
      ASSERT_EQ(error_of([&] { s.build(); }), "no error") << kb::dtype_name(compute) << " mode " << mode;
      if (mode == KB_EVAL) {
        EXPECT_TRUE(s.graph->writes.empty());
      }
      if (compute == KB_BF16) continue;  // the CPU has no kernels for it
      Program& p = bench.ready(std::move(s.graph), ArenaMode::planned, false).program;
      Surrounding::fill(p, bench);
      EXPECT_EQ(p.run(Check::range).value_or(""), "");
    }
}

TEST_P(Conformance, KeysAtTheEndsOfTheirRangesWorkOrFailInWords) {
  for (const FieldInfo& f : info().fields) {
    if (f.type != "int" && f.type != "float") continue;
    for (const double end : {f.lo, f.hi}) {
      if (!std::isfinite(end)) continue;
      char text[64];
      std::snprintf(text, sizeof text, f.type == "int" ? "%.0f" : "%.17g", end);
      Bench bench(KB_F32);
      const std::string got = error_of([&] {
        std::vector<std::string> set = needed();
        set.push_back(f.name + "=" + text);
        bench.load(kind(), name(), set);
        if (!bench.instance->table->build) return use_service(*bench.instance);
        Surrounding s(bench, train_mode());
        build(s);
      });
      // In words: with its place, and with what it got.
      EXPECT_TRUE(got == "no error" || (got[0] == '[' && got.size() > 30)) << f.name << " = " << text << ": " << got;
      RecordProperty(f.name + "_" + text, got);

      const double step = f.type == "int" ? 1 : std::max(1e-3, 1e-3 * std::abs(end));
      const double past = end == f.lo ? end - step : end + step;
      std::snprintf(text, sizeof text, f.type == "int" ? "%.0f" : "%.17g", past);
      std::string refusal = "no error";
      try {
        std::vector<std::string> set = needed();
        set.push_back(f.name + "=" + text);
        load_component(kind(), name(), "", set, registry().catalog());
      } catch (const RecipeErrors& e) {
        refusal = e.text();
      }
      EXPECT_NE(refusal.find(f.name), std::string::npos) << f.name << " = " << text << ": " << refusal;
    }
  }
}

std::string test_name(const ::testing::TestParamInfo<std::string>& p) {
  std::string s = p.param;
  std::replace_if(
      s.begin(), s.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return s;
}
INSTANTIATE_TEST_SUITE_P(Found, Conformance, ::testing::ValuesIn(components()), test_name);

TEST(Model, BuildsInBf16WithWideMastersAndAccumulators) {
  const TextFile file(recipe_text(hybrid(block_attnres), "use = \"muon\""));
  const Recipe recipe = load_recipe(file.path(), {}, registry().catalog());
  LanguageModel model(recipe, registry());
  BuildOptions o;
  o.compute = KB_BF16;
  o.recompute = Recompute::block;
  Bounds b;
  b.tokens = 40, b.documents = 4, b.slots = 4, b.capacity = 24;
  EXPECT_EQ(error_of([&] {
              model.micro(b, o), model.eval(b, o), model.serve(false, b, o), model.serve(true, b, o);
              model.apply(o), model.init(o);
            }),
            "no error");
  int64_t narrow = 0;
  for (const StoreEntry& e : model.store.entries()) {
    if (e.life == Life::accumulator || e.life == Life::model || e.life == Life::optimizer) {
      EXPECT_EQ(e.type.dtype, uint32_t(KB_F32)) << e.name;
    }
    if (e.life != Life::param || e.type.dtype != KB_BF16) continue;
    ++narrow;
    const StoreEntry* master = model.store.find("master." + e.name);
    ASSERT_NE(master, nullptr) << e.name;
    EXPECT_TRUE(same_shape(master->type, e.type)) << e.name;
  }
  EXPECT_GT(narrow, 20);
}

TEST(Catalog, HoldsEveryPluginOfTheKit) {
  const std::vector<std::string> found = components();
  for (const char* id : {"activation.situ-glu", "activation.swiglu", "attention.gated-mla", "attention.kda",
                         "decay.bounded", "decay.softplus", "ffn.dense", "ffn.latent-moe", "norm.rmsnorm",
                         "objective.next-token", "optimizer.adamw", "optimizer.muon", "residual.block-attnres",
                         "residual.standard", "router.quantile", "schedule.cosine", "schedule.wsd"})
    EXPECT_TRUE(std::count(found.begin(), found.end(), id)) << id;
}

}  // namespace
}  // namespace kitbash::test
