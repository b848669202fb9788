// components: what can be written behind `use` in a recipe, by kind.
#include <iostream>
#include <map>
#include <memory>
#include <set>

#include "base/table.h"
#include "base/text.h"
#include "cli/fields.h"
#include "cli/json.h"
#include "cli/verb.h"
#include "kitbash/error.h"
#include "recipe/suggest.h"

namespace kitbash {
namespace {

void run(const Globals& g, const std::string& kind) {
  const Catalog catalog = open_catalog(g);
  const std::vector<std::string> kinds = catalog.kinds();
  if (!kind.empty() && catalog.of_kind(kind).empty())
    kb::fail("[components] the kind must be one of ", kinds.empty() ? "(no plugin was found)" : join(kinds, ", "),
             " but got '", kind, "'", did_you_mean(kind, kinds));
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  Table table({"kind", "name", "plugin", "version", "keys"});
  for (const std::string& k : kind.empty() ? kinds : std::vector<std::string>{kind}) {
    for (const ComponentInfo* c : catalog.of_kind(k)) {
      std::vector<std::string> keys;
      for (const FieldInfo& f : c->fields) keys.push_back(f.name);
      table.row({c->kind, c->name, c->plugin->id, c->plugin->version, join(keys, " ")});
      all.push_back(component_json(*c));
    }
  }
  // Plugins that only make others faster: known by their manifests, loaded when their device is opened.
  nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
  Table faster({"kernels of", "device", "plugin", "version"});
  for (const auto& p : catalog.plugins()) {
    if (!kind.empty() || !p->components.empty() || p->kernels.empty()) continue;
    std::map<std::string, std::set<std::string>> ops;
    for (const KernelInfo& k : p->kernels) ops[k.device].insert(k.op);
    for (const auto& [device, names] : ops) {
      const std::vector<std::string> list(names.begin(), names.end());
      kernels.push_back({{"plugin", p->id}, {"version", p->version}, {"device", device}, {"ops", list}});
      faster.row({list.size() > 6 ? std::to_string(list.size()) + " ops" : join(list, " "), device, p->id, p->version});
    }
  }
  if (g.json)
    std::cout << json_text(nlohmann::ordered_json{{"components", all}, {"kernels", kernels}}) << "\n";
  else if (table.rows())
    std::cout << table.text() << (faster.rows() ? "\n" + faster.text() : "");
  else
    std::cout << "no component was found; `kitbash plugin path` shows where plugins are searched\n";
}

}  // namespace

void add_components(CLI::App& app, Globals& g) {
  CLI::App* verb = app.add_subcommand("components", "list the components that the plugins provide");
  auto kind = std::make_shared<std::string>();
  verb->add_option("kind", *kind, "only this kind: attention, ffn, optimizer, ...")->type_name("KIND");
  common_options(*verb, g, true, "kitbash components attention");
  verb->callback([&g, kind] { run(g, *kind); });
}

}  // namespace kitbash
