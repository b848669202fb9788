// source.h: where components are looked up: the catalog of installed plugins, or a handful made up by a test.
#pragma once
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace kitbash {

struct ComponentSource {
  virtual ~ComponentSource() = default;
  virtual const ComponentInfo* find(const std::string& kind, const std::string& name) const = 0;  // as Catalog::find
  virtual std::vector<std::string> names(const std::string& kind) const = 0;
  virtual std::vector<std::string> kinds() const = 0;
};

Recipe load_recipe(const std::string& path, const std::vector<std::string>& set, const ComponentSource& source);
Recipe load_recipe(const RecipeText& text, const std::vector<std::string>& set, const ComponentSource& source);
std::unique_ptr<ComponentConfig> load_component(const std::string& kind, const std::string& name,
                                                const std::string& path, const std::vector<std::string>& set,
                                                const ComponentSource& source,
                                                std::vector<std::string>* notes = nullptr);

}  // namespace kitbash
