// check: a recipe is right, or every mistake of it at once. The file is checked against the manifests before any plugin code
// runs; only then every program is built, shapes only, in bf16 types too, which show a missing narrow() that f32 hides.
#include <iostream>
#include <memory>

#include "base/number.h"
#include "cli/verb.h"
#include "model/language_model.h"
#include "ops/ops.h"

namespace kitbash {
namespace {

void build_all(const Recipe& recipe, Registry& registry, uint32_t compute) {
  LanguageModel model(recipe, registry);
  BuildOptions o;
  o.compute = compute;
  o.recompute = recompute_of(recipe.train.recompute);
  const StageConfig& s = recipe.curriculum.front();
  Bounds b;
  b.tokens = s.micro_tokens, b.documents = s.max_documents;
  model.micro(b, o);
  model.apply(o);
  Bounds serve;
  serve.tokens = 2, serve.capacity = s.context;
  model.serve(false, serve, o);
}

void run(Globals& g, const std::string& path, const std::vector<std::string>& set) {
  Registry registry(open_catalog(g));
  register_base_ops(registry);
  const Recipe recipe = load_recipe(path, set, registry.catalog());
  print_notes(recipe);
  if (recipe.train.compute == "f32") build_all(recipe, registry, KB_F32);
  build_all(recipe, registry, KB_BF16);
  std::cout << path << ": ok (" << recipe.model.layers.size() << " layers, " << recipe.curriculum.size()
            << (recipe.curriculum.size() == 1 ? " stage" : " stages") << ")\n";
}

}  // namespace

void add_check(CLI::App& app, Globals& g) {
  CLI::App* verb = app.add_subcommand("check", "check a recipe; show every mistake at once");
  auto path = std::make_shared<std::string>();
  auto set = std::make_shared<std::vector<std::string>>();
  verb->add_option("recipe", *path, "the recipe, a TOML file")->required()->type_name("FILE");
  verb->add_option("--set", *set, "replace a key: model.residual.use=standard; repeatable")
      ->type_name("KEY=VALUE")
      ->take_all();
  common_options(*verb, g, false, "kitbash check recipes/reference/tiny.toml --set model.residual.use=standard");
  verb->callback([&g, path, set] { run(g, *path, *set); });
}

}  // namespace kitbash
