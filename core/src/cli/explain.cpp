// explain: a recipe with every default filled in, or the keys of one component.
#include <filesystem>
#include <iostream>
#include <memory>

#include "base/text.h"
#include "cli/fields.h"
#include "cli/json.h"
#include "cli/verb.h"
#include "kitbash/error.h"
#include "recipe/suggest.h"

namespace kitbash {
namespace {

bool is_recipe(const std::string& what) {
  std::error_code e;
  return what.find('/') != what.npos || what.ends_with(".toml") || std::filesystem::is_regular_file(what, e);
}

void explain_recipe(const Globals& g, const std::string& path, const std::vector<std::string>& set) {
  const Recipe recipe = load_recipe(path, set, open_catalog(g));
  print_notes(recipe);
  if (g.json)
    std::cout << json_text(nlohmann::ordered_json{
                     {"name", recipe.name}, {"notes", recipe.notes}, {"resolved", recipe.resolved}})
              << "\n";
  else
    std::cout << recipe.resolved << (recipe.resolved.ends_with('\n') ? "" : "\n");
}

void explain_component(const Globals& g, const std::string& id) {
  const size_t dot = id.find('.');
  if (dot == id.npos)
    kb::fail("[explain] expected a recipe file or KIND.NAME but got '", id,
             "'; `kitbash components` lists the components, a recipe ends with .toml");
  const Catalog catalog = open_catalog(g);
  const ComponentInfo* c = catalog.find(id.substr(0, dot), id.substr(dot + 1));
  if (!c) {
    std::vector<std::string> ids;
    for (const std::string& kind : catalog.kinds())
      for (const ComponentInfo* other : catalog.of_kind(kind)) ids.push_back(other->id());
    kb::fail("[explain] the component must be provided by a plugin but '", id, "' is not", did_you_mean(id, ids),
             "; `kitbash components` lists all");
  }
  if (g.json) {
    std::cout << json_text(component_json(*c)) << "\n";
    return;
  }
  std::cout << c->id() << "  (plugin " << c->plugin->id << " " << c->plugin->version << ", " << c->plugin->path
            << ")\n\n"
            << fields_table(*c, "  ");
}

}  // namespace

void add_explain(CLI::App& app, Globals& g) {
  CLI::App* verb =
      app.add_subcommand("explain", "print a recipe with every default filled in, or the keys of a component");
  auto what = std::make_shared<std::string>();
  auto set = std::make_shared<std::vector<std::string>>();
  verb->add_option("what", *what, "a recipe file, or KIND.NAME")->type_name("RECIPE|KIND.NAME")->required();
  verb->add_option("--set", *set, "override a key of the recipe; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  common_options(
      *verb, g, true,
      "kitbash explain recipes/quickstart.toml --set model.residual.use=standard\n  kitbash explain attention.kda");
  verb->callback([&g, what, set] {
    if (is_recipe(*what)) return explain_recipe(g, *what, *set);
    if (!set->empty()) kb::fail("[explain] --set needs a recipe but got the component '", *what, "'");
    explain_component(g, *what);
  });
}

}  // namespace kitbash
