#include "recipe/source.h"

namespace kitbash {
namespace {

struct CatalogSource : ComponentSource {
  const Catalog& catalog;
  explicit CatalogSource(const Catalog& c) : catalog(c) {}
  const ComponentInfo* find(const std::string& kind, const std::string& name) const override {
    return catalog.find(kind, name);
  }
  std::vector<std::string> names(const std::string& kind) const override {
    std::vector<std::string> r;
    for (const auto* c : catalog.of_kind(kind)) r.push_back(c->name);
    return r;
  }
  std::vector<std::string> kinds() const override { return catalog.kinds(); }
};

}  // namespace

Recipe load_recipe(const std::string& path, const std::vector<std::string>& set, const Catalog& catalog) {
  return load_recipe(path, set, CatalogSource(catalog));
}
Recipe load_recipe(const RecipeText& text, const std::vector<std::string>& set, const Catalog& catalog) {
  return load_recipe(text, set, CatalogSource(catalog));
}
std::unique_ptr<ComponentConfig> load_component(const std::string& kind, const std::string& name,
                                                const std::string& path, const std::vector<std::string>& set,
                                                const Catalog& catalog, std::vector<std::string>* notes) {
  return load_component(kind, name, path, set, CatalogSource(catalog), notes);
}

}  // namespace kitbash
