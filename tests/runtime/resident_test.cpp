// The plan's bytes against the process: what a step really makes resident. An executable of its own, so that the process is
// fresh.
#include <fstream>
#include <sstream>

#include "model/language_model.h"
#include "report/plan.h"
#include "tests/runtime/fixture.h"

namespace kitbash {
namespace {

int64_t resident_bytes() {
  std::ifstream f("/proc/self/status");
  std::string line;
  while (std::getline(f, line))
    if (line.rfind("VmRSS:", 0) == 0) {
      std::istringstream s(line.substr(6));
      int64_t kib = 0;
      s >> kib;
      return kib * 1024;
    }
  return -1;
}

void feed_batch(Program& p, const Bounds& b, int64_t vocab) {
  auto* tokens = static_cast<int32_t*>(p.input("tokens"));
  auto* target = static_cast<int32_t*>(p.input("target"));
  auto* weight = static_cast<float*>(p.input("loss_weight"));
  auto* position = static_cast<int32_t*>(p.input("position"));
  auto* document = static_cast<int32_t*>(p.input("document"));
  auto* cu = static_cast<int32_t*>(p.input("cu"));
  for (int64_t t = 0; t < b.tokens; ++t) {
    tokens[t] = int32_t(t * 7 % vocab), target[t] = int32_t((t + 1) * 7 % vocab);
    weight[t] = 1, position[t] = int32_t(t), document[t] = 0;
  }
  cu[0] = 0;
  for (int64_t d = 1; d <= b.documents; ++d) cu[d] = int32_t(b.tokens);
  p.set_extent("tokens", int32_t(b.tokens));
}

class Resident : public ::testing::TestWithParam<std::vector<std::string>> {};  // keys that set the size

TEST_P(Resident, bytes_grow_by_what_the_plan_says_within_five_percent) {
  Registry registry(Catalog::discover({KITBASH_PLUGINS}));
  register_base_ops(registry);
  const Recipe recipe =
      load_recipe(std::string(KITBASH_RECIPES) + "/reference/tiny.toml", GetParam(), registry.catalog());
  const Plan plan = make_plan(recipe, registry);
  const int64_t planned =
      plan.store_bytes() + std::max(plan.stages[0].micro_arena, plan.apply_arena) + plan.program_bytes();
  ASSERT_GE(planned, 200e6) << "too small to tell anything";

  LanguageModel model(recipe, registry);
  Device device(registry, KB_CPU, 0);
  BuildOptions o;
  o.compute = compute_dtype(recipe);
  Bounds b;
  b.tokens = recipe.curriculum[0].micro_tokens, b.documents = recipe.curriculum[0].max_documents;
  Program micro(model.micro(b, o), device, ArenaMode::planned), apply(model.apply(o), device, ArenaMode::planned);
  const int64_t before = resident_bytes();
  Arena arena;
  micro.reserve(arena), apply.reserve(arena);
  StoreMemory memory(model.store);
  memory.allocate();
  micro.bind(arena, memory), apply.bind(arena, memory);
  for (const StoreEntry& e : model.store.entries())  // any start will do; what matters is that it is there
    if (e.life == Life::param) fill_elements(memory.at(e.name), e.type.dtype, kb::elements(e.type), 0.01);
  feed_batch(micro, b, recipe.model.vocab);
  const int64_t bound = resident_bytes();
  micro.run();
  const int64_t stepped = resident_bytes();
  *static_cast<float*>(apply.input("lr")) = 1e-3f;
  *static_cast<float*>(apply.input("step")) = 1;
  for (const char* limit : {"loss_limit", "norm_limit"}) *static_cast<float*>(apply.input(limit)) = 0;
  apply.run();
  EXPECT_EQ(apply.scalar("step_ok"), 1) << "a step that is left out touches too little";
  const int64_t grown = resident_bytes() - before;
  std::printf(
      "planned %.1f MB (store %.1f, arena %.1f, programs %.1f), resident growth %.1f MB (bound %.1f, micro %.1f; %+.2f "
      "%%)\n",
      double(planned) / 1e6, double(plan.store_bytes()) / 1e6,
      double(planned - plan.store_bytes() - plan.program_bytes()) / 1e6, double(plan.program_bytes()) / 1e6,
      double(grown) / 1e6, double(bound - before) / 1e6, double(stepped - before) / 1e6,
      100.0 * (double(grown) / double(planned) - 1));
  EXPECT_EQ(memory.bytes() / (1 << 20), plan.store_bytes() / (1 << 20))
      << "entries are rounded up to 64 bytes, not more";
  EXPECT_NEAR(double(grown), double(planned), 0.05 * double(planned));
}
// Each in a process of its own (tests/runtime/CMakeLists.txt): a heap that has grown once does not show the next growth.
std::vector<std::string> sized(int dim, int vocab, int context) {
  const std::string c = std::to_string(context);
  return {"model.dim=" + std::to_string(dim), "model.vocab=" + std::to_string(vocab), "curriculum.0.context=" + c,
          "curriculum.0.micro_tokens=" + c, "curriculum.0.batch_tokens=" + c};
}
INSTANTIATE_TEST_SUITE_P(Sizes, Resident, ::testing::Values(sized(96, 25000, 512), sized(256, 32000, 1024)));

}  // namespace
}  // namespace kitbash
