// [data] and the mix of a stage.
#include <cmath>

#include "recipe/compose.h"
#include "recipe/suggest.h"

namespace kitbash {

void compose_data(const RecipeNode& node, const Checker& check, Recipe& out) {
  Faults& faults = check.faults;
  const Values v("data", node, faults);
  DataConfig& d = out.data;
  d.where = node.where;
  d.join = v.boolean("join");
  d.interleave = v.integer("interleave");
  d.tokenizer = core_slot("data", "tokenizer", node, "data", check);
  if (!v.has("sources")) return;
  const RecipeNode& sources = *node.find("sources");
  if (sources.keys.empty()) faults.add(sources.where, "data needs at least one [data.sources.NAME]");
  for (const auto& [name, child] : sources.keys) {
    const size_t before = faults.count();
    auto c = check.slot("source", &child, "data.sources." + name, "");
    if (!c && faults.count() == before)
      faults.add(child.where, "source '", name, "' needs 'use' (string): a component of kind source");
    // Also a source with mistakes is listed, or every mix that names it would be a second error.
    d.sources[name] = std::move(c);
  }
}

std::map<std::string, double> compose_mix(const RecipeNode* mix, const DataConfig& data, Faults& faults) {
  std::map<std::string, double> shares;
  std::vector<std::string> names;
  for (const auto& [name, source] : data.sources) names.push_back(name);
  if (!mix) {
    for (const auto& name : names) shares[name] = 1;
    return shares;
  }
  if (names.empty()) {
    faults.add(mix->where, "'mix' names sources but the recipe has no [data.sources.NAME]");
    return shares;
  }
  if (mix->keys.empty()) faults.add(mix->where, "'mix' must name at least one source but is empty");
  for (const auto& [name, child] : mix->keys) {
    if (!data.sources.count(name)) {
      faults.add(child.key, "there is no source '", name, "'", did_you_mean_or_list(name, names));
      continue;
    }
    FieldInfo f;
    f.name = name, f.type = "float";
    FieldValue share;
    if (!check_value(f, child, faults, share)) continue;
    const double x = std::get<double>(share);
    if (x > 0 && std::isfinite(x))
      shares[name] = x;
    else if (x > 0)
      faults.add(child.where, "the share of '", name, "' must be above 0 and finite but got ", x);
    else
      faults.add(child.where, "the share of '", name, "' must be above 0 but got ", x, "; leave the source out");
  }
  return shares;
}

}  // namespace kitbash
