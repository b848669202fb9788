#include "recipe/compose.h"

#include <algorithm>
#include <charconv>

#include "recipe/keys.h"
#include "recipe/suggest.h"

namespace kitbash {
namespace {

std::string standard(const std::string& table, const std::string& slot) {
  const FieldInfo* f = field_named(key_table(table).fields, slot);
  return f->fallback ? std::get<std::string>(*f->fallback) : "";
}

bool known_layer(const std::string& name, const Where& w, const std::vector<std::string>& names, Faults& faults) {
  if (std::find(names.begin(), names.end(), name) != names.end()) return true;
  faults.add(w, "there is no layer '", name, "'", did_you_mean_or_list(name, names));
  return false;
}

std::vector<std::string> pattern_of(const RecipeNode& model, const Values& v, const std::vector<std::string>& names,
                                    Faults& faults) {
  const RecipeNode* p = model.find("pattern");
  if (!p && names.size() == 1) return names;
  if (!p) {
    if (!names.empty())
      faults.add(model.where, "model needs 'pattern' (array of strings): it has ", names.size(), " layers");
    return {};
  }
  if (!v.has("pattern")) return {};
  if (p->items.empty()) faults.add(p->where, "'pattern' must name at least one layer but is empty");
  std::vector<std::string> r;
  for (const auto& item : p->items)
    if (known_layer(*item.text(), item.where, names, faults)) r.push_back(*item.text());
  return r.size() == p->items.size() ? r : std::vector<std::string>();
}

std::map<int64_t, std::string> exceptions(const RecipeNode& model, const Values& v,
                                          const std::vector<std::string>& names, int64_t layers, Faults& faults) {
  std::map<int64_t, std::string> r;
  if (!v.has("at") || !v.given("at")) return r;
  std::map<int64_t, std::string> taken;  // position -> key as written
  for (const auto& [key, child] : model.find("at")->keys) {
    int64_t n = 0;
    const auto e = std::from_chars(key.data(), key.data() + key.size(), n);
    if (e.ec != std::errc() || e.ptr != key.data() + key.size()) {
      faults.add(child.key, "'at' wants layer numbers, from 0 or negative from the end, but got '", key, "'");
      continue;
    }
    if (!child.text()) {
      faults.add(child.where, "'at' wants the name of a layer but got ", type_name(child.type));
      continue;
    }
    if (!known_layer(*child.text(), child.where, names, faults)) continue;
    if (layers > 0 && (n >= layers || n < -layers)) {
      faults.add(child.key, "'at' must be in [", -layers, ", ", layers - 1, "], as there are ", layers,
                 " layers, but got ", n);
      continue;
    }
    const auto [other, fresh] = taken.emplace(n < 0 ? n + layers : n, key);
    if (!fresh) {
      faults.add(child.key, "'at' names one layer twice: ", other->second, " and ", key);
      continue;
    }
    r[n] = *child.text();
  }
  return r;
}

}  // namespace

std::unique_ptr<ComponentConfig> core_slot(const std::string& table, const std::string& name, const RecipeNode& node,
                                           const std::string& path, const Checker& check) {
  const FieldInfo* f = field_named(key_table(table).fields, name);
  const RecipeNode* given = node.find(name);
  const size_t before = check.faults.count();
  auto c = check.slot(f->kind, given, path.empty() ? name : path + "." + name, standard(table, name));
  if (!c && given && check.faults.count() == before)
    check.faults.add(given->where, "'", name, "' needs 'use' (string): a component of kind ", f->kind);
  return c;
}

void compose_model(const RecipeNode& node, const Checker& check, Recipe& out) {
  Faults& faults = check.faults;
  const Values v("model", node, faults);
  ModelConfig& m = out.model;
  m.where = node.where;
  m.dim = v.integer("dim"), m.vocab = v.integer("vocab"), m.std = v.real("std");
  const auto own = [&](std::unique_ptr<ComponentConfig> c) -> const ComponentConfig* {
    if (!c) return nullptr;
    m.owned.push_back(std::move(c));
    return m.owned.back().get();
  };
  m.residual = own(core_slot("model", "residual", node, "model", check));
  m.norm = own(core_slot("model", "norm", node, "model", check));
  m.objective = own(core_slot("model", "objective", node, "model", check));

  std::vector<std::string> names, order;
  if (v.has("layer")) {
    const RecipeNode& layers = *node.find("layer");
    if (layers.keys.empty()) faults.add(layers.where, "model needs at least one [model.layer.NAME]");
    auto tables = named_layers(layers, faults, order);
    for (const auto& [name, table] : tables) names.push_back(name);
    for (const auto& name : order) {
      const RecipeNode& table = tables.at(name);
      if (!table.is(RecipeNode::Type::table)) continue;
      const Values told("layer", table, faults, kb::text("layer '", name, "'"));
      const std::string path = "model.layer." + name;
      m.named[name] = {name, own(core_slot("layer", "attention", table, path, check)),
                       own(core_slot("layer", "ffn", table, path, check))};
    }
  }
  const int64_t layers = v.integer("layers");
  out.pattern = pattern_of(node, v, names, faults);
  out.at = exceptions(node, v, names, layers, faults);
  if (!faults.empty()) return;
  for (int64_t i = 0; i < layers; ++i) m.layers.push_back(m.named.at(out.pattern[size_t(i) % out.pattern.size()]));
  for (const auto& [i, name] : out.at) m.layers[size_t(i < 0 ? i + layers : i)] = m.named.at(name);
}

void compose_curriculum(const RecipeNode& stages, const Checker& check, Recipe& out) {
  Faults& faults = check.faults;
  if (stages.items.empty()) faults.add(stages.where, "'curriculum' must have at least one stage");
  for (size_t i = 0; i < stages.items.size(); ++i) {
    const RecipeNode& node = stages.items[i];
    const Values v("curriculum", node, faults);
    StageConfig s;
    s.where = node.where;
    s.name = v.given("name") ? v.text("name") : kb::text("stage", i);
    s.context = v.integer("context"), s.tokens = v.integer("tokens");
    s.batch_tokens = v.integer("batch_tokens"), s.lr = v.real("lr");
    s.micro_tokens = v.given("micro_tokens") ? v.integer("micro_tokens") : s.batch_tokens;
    s.max_documents = v.given("max_documents") ? v.integer("max_documents")
                                               : std::min(s.micro_tokens, std::max<int64_t>(16, s.micro_tokens / 64));
    s.schedule = core_slot("curriculum", "schedule", node, kb::text("curriculum.", i), check);
    s.mix = compose_mix(v.has("mix") ? node.find("mix") : nullptr, out.data, faults);
    const auto place = [&](const char* key) { return node.find(key) ? node.find(key)->where : node.where; };
    const char* bound = v.given("micro_tokens") ? "'micro_tokens'" : "'batch_tokens'";
    if (s.micro_tokens > INT32_MAX)  // the key has its bound; this one came from batch_tokens
      faults.add(place("batch_tokens"), "'batch_tokens' must be at most ", INT32_MAX,
                 " without 'micro_tokens' but got ", s.batch_tokens, "; set micro_tokens");
    if (s.micro_tokens > 0) {
      if (s.batch_tokens > 0 && s.batch_tokens % s.micro_tokens)
        faults.add(place("batch_tokens"), "'batch_tokens' must be a multiple of 'micro_tokens' (", s.micro_tokens,
                   ") but got ", s.batch_tokens);
      if (s.context > s.micro_tokens)
        faults.add(place("context"), "'context' must be at most ", bound, " (", s.micro_tokens, ") but got ",
                   s.context);
      if (s.max_documents > s.micro_tokens)
        faults.add(place("max_documents"), "'max_documents' must be at most ", bound, " (", s.micro_tokens,
                   ") but got ", s.max_documents);
    }
    if (s.tokens > 0 && s.tokens < s.batch_tokens)
      faults.add(place("tokens"), "'tokens' must be at least 'batch_tokens' (", s.batch_tokens, ") but got ", s.tokens);
    for (const auto& other : out.curriculum)
      if (other.name == s.name) faults.add(place("name"), "two stages are called '", s.name, "'");
    out.curriculum.push_back(std::move(s));
  }
}

}  // namespace kitbash
