// compose.h: from the merged tree to the recipe: layers (like, pattern, at), the other slots, data, train and curriculum.
#pragma once
#include "recipe/check.h"

namespace kitbash {

// `like` resolved for every named layer: tables with attention and ffn only. After overrides: a --set on a layer
// reaches the layers that are like it.
std::map<std::string, RecipeNode> named_layers(const RecipeNode& layers, Faults& faults,
                                               std::vector<std::string>& order);
void compose_model(const RecipeNode& model, const Checker& check, Recipe& out);
// Before the curriculum, whose mixes name sources.
void compose_data(const RecipeNode& data, const Checker& check, Recipe& out);
std::unique_ptr<ComponentConfig> core_slot(const std::string& table, const std::string& name, const RecipeNode& node,
                                           const std::string& path, const Checker& check);
// The mix of a stage; null: not given. Shares as written; they need not sum to one.
std::map<std::string, double> compose_mix(const RecipeNode* mix, const DataConfig& data, Faults& faults);
void compose_curriculum(const RecipeNode& stages, const Checker& check, Recipe& out);
std::string resolved_text(const Recipe& r);  // the whole recipe as TOML, with every default

}  // namespace kitbash
