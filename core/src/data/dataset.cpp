#include "data/dataset.h"

#include <filesystem>

#include "base/sha256.h"
#include "recipe/check.h"
#include "recipe/layered.h"

namespace kitbash {
namespace {

using Type = RecipeNode::Type;

class Manifest {
 public:
  Manifest(const RecipeNode& root, Faults& faults) : root_(root), faults_(faults) {}
  const RecipeNode* table(const std::string& name) {
    const RecipeNode* t = root_.find(name);
    if (!t || !t->is(Type::table)) faults_.add(t ? t->where : root_.where, "a dataset needs [", name, "]");
    return t && t->is(Type::table) ? t : nullptr;
  }
  std::string text(const RecipeNode* t, const std::string& key) {
    const RecipeNode* n = get(t, key);
    if (!n) return "";
    if (n->text() && !n->text()->empty()) return *n->text();
    faults_.add(n->where, "'", key, "' wants a string that is not empty but got ", type_name(n->type));
    return "";
  }
  int64_t integer(const RecipeNode* t, const std::string& key, int64_t lo, int64_t hi) {
    const RecipeNode* n = get(t, key);
    FieldInfo f;
    f.name = key, f.type = "int", f.lo = double(lo), f.hi = double(hi);
    FieldValue v;
    return n && check_value(f, *n, faults_, v) ? std::get<int64_t>(v) : lo;
  }

 private:
  const RecipeNode* get(const RecipeNode* t, const std::string& key) {
    if (!t) return nullptr;
    const RecipeNode* n = t->find(key);
    if (!n) faults_.add(t->where, "needs '", key, "'");
    return n;
  }
  const RecipeNode& root_;
  Faults& faults_;
};

}  // namespace

Dataset read_dataset(const std::string& folder) {
  Dataset d;
  d.folder = folder;
  d.path = (std::filesystem::path(folder) / "manifest.toml").string();
  std::string why;
  const std::optional<std::string> text = read_text(d.path, why);
  if (!text) kb::fail("[data prepare] '", d.path, "' must be the manifest of a dataset but ", why);
  const RecipeNode root = parse_toml(*text, d.path, 0);
  Faults faults;
  faults.order(d.path);
  Manifest m(root, faults);
  d.name = m.text(&root, "name"), d.title = m.text(&root, "title");
  const RecipeNode *origin = m.table("origin"), *license = m.table("license"), *rule = m.table("split");
  d.license = m.text(license, "name");
  d.package = m.text(origin, "package"), d.version = m.text(origin, "version");
  d.text_file = m.text(origin, "text"), d.text_sha256 = m.text(origin, "text_sha256");
  d.index_file = m.text(origin, "index"), d.index_sha256 = m.text(origin, "index_sha256");
  if (origin && origin->find("encoding")) {
    const std::string e = m.text(origin, "encoding");
    if (e != "utf-8" && e != "windows-1252")
      faults.add(origin->find("encoding")->where, "'encoding' must be one of 'utf-8', 'windows-1252' but got '", e,
                 "'");
    d.windows_1252 = e == "windows-1252";
  }
  if (const RecipeNode* drop = origin ? origin->find("drop_lines") : nullptr) {
    if (!drop->is(Type::array))
      faults.add(drop->where, "'drop_lines' wants array of strings but got ", type_name(drop->type));
    for (const auto& line : drop->items)
      if (line.text())
        d.drop_lines.push_back(*line.text());
      else
        faults.add(line.where, "'drop_lines' wants array of strings but got ", type_name(line.type), " in it");
  }
  d.held_out_percent = m.integer(rule, "held_out_percent", 1, 99);
  if (!d.package.empty() && d.package.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789+-.") != std::string::npos)
    faults.add(origin->find("package")->where, "'package' must be the name of a Debian package but got '", d.package,
               "'");
  if (!faults.empty()) faults.raise();
  d.manifest_sha256 = sha256(*text);
  return d;
}

}  // namespace kitbash
