#include "recipe/recipe.h"

#include <filesystem>

#include "recipe/compose.h"
#include "recipe/layered.h"

namespace kitbash {
namespace fs = std::filesystem;
namespace {

// The run gets a folder of this name.
void check_name(const std::string& name, const Where& w, Faults& faults) {
  bool good = !name.empty() && name != "." && name != ".." && name.size() <= 200;
  for (const char c : name) good = good && c != '/' && static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
  if (!good)
    faults.add(w,
               "'name' must do as the name of a folder: 1 to 200 bytes, no '/' or control character, not '.' or "
               "'..', but got '",
               name, "'");
}

Recipe load(const std::string& path, const std::string* text, const std::vector<std::string>& set,
            const ComponentSource& source) {
  Faults faults;
  int sources = 0;
  RecipeNode root = load_files(path, text, faults, sources);
  apply_sets(root, set, faults, sources);
  if (const RecipeNode* number = root.find("kitbash")) {  // of a --set
    check_format(*number, faults);
    root.keys.erase("kitbash");
  }
  // Not after the merge: `extends` belongs to one file, and a --set of it would come too late.
  if (const RecipeNode* e = root.find("extends"))
    faults.add(e->where, "'extends' cannot be set from outside; write a recipe that extends");
  const Checker check{source, faults, text ? "" : fs::path(path).parent_path().string()};

  Recipe r;
  r.path = path;
  const Values v("recipe", root, faults);
  r.name = v.given("name") ? v.text("name") : fs::path(path).stem().string();
  if (const RecipeNode* n = root.find("name"); !n || n->text()) check_name(r.name, n ? n->where : root.where, faults);
  if (v.has("model")) compose_model(*root.find("model"), check, r);
  const RecipeNode none = RecipeNode::table_at({}, 0);
  if (!v.given("train") || v.has("train")) {
    const Values t("train", v.given("train") ? *root.find("train") : none, faults);
    r.train = {t.integer("seed"), t.text("compute"),          t.text("recompute"),
               t.real("clip"),    t.boolean("deterministic"), t.integer("checkpoint_every"),
               t.integer("keep"), t.integer("log_every"),     t.integer("eval_tokens")};
  }
  if (const RecipeNode* o = root.find("optimizer")) {
    const size_t before = faults.count();
    r.optimizer = check.slot("optimizer", o, "optimizer", "");
    if (!r.optimizer && faults.count() == before)
      faults.add(o->where, "'optimizer' needs 'use' (string): a component of kind optimizer");
  }
  if (v.has("data")) compose_data(*root.find("data"), check, r);
  if (v.has("curriculum")) compose_curriculum(*root.find("curriculum"), check, r);
  if (!faults.empty()) faults.raise();
  r.notes = faults.notes();
  r.resolved = resolved_text(r);
  return r;
}

}  // namespace

Recipe load_recipe(const std::string& path, const std::vector<std::string>& set, const ComponentSource& source) {
  return load(path, nullptr, set, source);
}
Recipe load_recipe(const RecipeText& text, const std::vector<std::string>& set, const ComponentSource& source) {
  return load(text.name, &text.text, set, source);
}

std::unique_ptr<ComponentConfig> load_component(const std::string& kind, const std::string& name,
                                                const std::string& path, const std::vector<std::string>& set,
                                                const ComponentSource& source, std::vector<std::string>* notes) {
  Faults faults;
  RecipeNode root = RecipeNode::table_at({path, path.empty() ? 0 : 1, path.empty() ? 0 : 1}, 0);
  if (!path.empty()) {
    faults.order(path);
    std::string why;
    const std::optional<std::string> text = read_text(path, why);
    if (!text) {
      faults.add({}, "[", path, "] the configuration must be a file that can be read but ", why);
      faults.raise();
    }
    root = parse_toml(*text, path, 0);
  }
  int sources = 1;
  apply_sets(root, set, faults, sources);
  if (const auto use = root.use(); use && *use != name)
    faults.add(root.find("use")->where, "'use' is '", *use, "' but the component asked for is ", kind, ".", name);
  root.keys.erase("use");
  for (auto& [key, child] : root.keys) child.beside = name;
  const Checker check{source, faults, path.empty() ? "" : fs::path(path).parent_path().string()};
  auto c = check.slot(kind, &root, kind + "." + name, name);
  if (!faults.empty()) faults.raise();
  if (notes) *notes = faults.notes();
  return c;
}

}  // namespace kitbash
