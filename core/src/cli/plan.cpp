// plan: parameters, FLOPs and bytes of a recipe, from the graphs that train it.
#include <iostream>
#include <memory>

#include "cli/json.h"
#include "cli/verb.h"
#include "ops/ops.h"
#include "report/plan.h"

namespace kitbash {
namespace {

void run(Globals& g, const std::string& path, const std::vector<std::string>& set) {
  Registry registry(open_catalog(g));
  register_base_ops(registry);
  const Recipe recipe = load_recipe(path, set, registry.catalog());
  print_notes(recipe);
  const Plan p = make_plan(recipe, registry);
  if (g.json)
    std::cout << json_text(plan_json(p)) << "\n";
  else
    std::cout << plan_text(p);
}

}  // namespace

void add_plan(CLI::App& app, Globals& g) {
  CLI::App* verb = app.add_subcommand("plan", "parameters, FLOPs and bytes of a recipe; nothing is run");
  auto path = std::make_shared<std::string>();
  auto set = std::make_shared<std::vector<std::string>>();
  verb->add_option("recipe", *path, "the recipe, a TOML file")->required()->type_name("FILE");
  verb->add_option("--set", *set, "replace a key: train.recompute=block; repeatable")
      ->type_name("KEY=VALUE")
      ->take_all();
  common_options(*verb, g, true, "kitbash plan recipes/reference/k3-2.8t.toml");
  verb->callback([&g, path, set] { run(g, *path, *set); });
}

}  // namespace kitbash
