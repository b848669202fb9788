// check: a recipe is right, or every mistake of it at once. The file is checked against the manifests before any plugin code
// runs; only then every component is created and every program built, shapes only, in bf16 types too, which show a missing
// narrow() that f32 hides.
#include <iostream>
#include <memory>

#include "base/number.h"
#include "cli/verb.h"
#include "data/missing.h"
#include "data/stream.h"
#include "graph/graph.h"
#include "graph/instance.h"
#include "kitbash/error.h"
#include "model/language_model.h"
#include "ops/ops.h"

namespace kitbash {
namespace {

void build_all(const Recipe& recipe, Registry& registry, uint32_t compute) {
  LanguageModel model(recipe, registry);
  BuildOptions o;
  o.compute = compute;
  o.recompute = recompute_of(recipe.train.recompute);
  // Stages differ in their bounds alone, and what fits the largest fits all.
  Bounds train, serve;
  serve.tokens = 2;
  for (const StageConfig& s : recipe.curriculum) {
    serve.capacity = std::max(serve.capacity, s.context);
    train.tokens = std::max(train.tokens, s.micro_tokens);
    train.documents = std::max(train.documents, s.max_documents);
  }
  model.micro(train, o);
  model.apply(o);
  model.serve(false, serve, o);
}

std::string place(const Where& w) { return w.file.empty() ? "" : " (" + w.text() + ")"; }

// What no program asks of: schedules, and how the text fits the model.
void check_run(const Recipe& recipe, Registry& registry) {
  for (const StageConfig& s : recipe.curriculum)
    if (s.schedule) create_instance(*s.schedule, registry, &host_table());
  if (!recipe.data.tokenizer) return;
  const Tokenizer tokenizer(*recipe.data.tokenizer, registry);
  if (tokenizer.vocab() > recipe.model.vocab)
    kb::fail("[model", place(recipe.model.where), "] 'vocab' must be at least ", tokenizer.vocab(), " for ",
             recipe.data.tokenizer->info->id(), " but got ", recipe.model.vocab);
  const int64_t least = tokenizer.bos() >= 0 ? 2 : 1;
  for (const StageConfig& s : recipe.curriculum)
    if (s.context < least)
      kb::fail("[curriculum '", s.name, "'", place(s.where), "] 'context' must be at least ", least,
               ", a start mark and a token of text, but got ", s.context);
  for (const auto& [name, c] : recipe.data.sources) {
    create_instance(*c, registry, &host_table());
    for (const MissingFile& m : missing_files(*c))
      std::cerr << "note: data.sources." << name << ": '" << m.key << "' is " << m.path << ", which does not exist"
                << (m.prepare.empty() ? "" : "; make it with: " + prepare_command(m.prepare)) << "\n";
  }
}

void run(Globals& g, const std::string& path, const std::vector<std::string>& set) {
  Registry registry(open_catalog(g));
  register_base_ops(registry);
  const Recipe recipe = load_recipe(path, set, registry.catalog());
  print_notes(recipe);
  check_run(recipe, registry);
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
