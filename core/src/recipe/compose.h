// compose.h: from the merged tree to the recipe: layers (like, pattern, at), the other slots, train and curriculum.
#pragma once
#include "recipe/check.h"

namespace kitbash {

// `like` resolved for every named layer: tables with attention and ffn only. After overrides: a --set on a layer
// reaches the layers that are like it.
std::map<std::string, RecipeNode> named_layers(const RecipeNode& layers, Faults& faults, std::vector<std::string>& order);
void compose_model(const RecipeNode& model, const Checker& check, Recipe& out);
void compose_curriculum(const RecipeNode& stages, const Checker& check, Recipe& out);
std::string resolved_text(const Recipe& r);  // the whole recipe as TOML, with every default

}  // namespace kitbash
