#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "recipe/keys.h"
#include "recipe/layered.h"

namespace kitbash {
namespace fs = std::filesystem;
namespace {

void check_format(const RecipeNode& file, Faults& faults) {
  const RecipeNode* f = file.find("kitbash");
  if (!f) return faults.add(file.where, "a recipe needs 'kitbash = ", kRecipeFormat, "', the number of its format");
  if (!f->is(RecipeNode::Type::integer))
    return faults.add(f->where, "'kitbash' wants int but got ", type_name(f->type),
                      "; write kitbash = ", kRecipeFormat);
  const int64_t v = std::get<int64_t>(f->value);
  if (v != kRecipeFormat)
    faults.add(f->where, "'kitbash' must be ", kRecipeFormat, ", the recipe format of this program, but got ", v);
}

}  // namespace

std::string read_text(const std::string& path, bool& ok) {
  std::ifstream in(path, std::ios::binary);
  std::error_code e;
  ok = in.good() && !fs::is_directory(path, e);
  std::ostringstream s;
  if (ok) s << in.rdbuf();
  return s.str();
}

RecipeNode load_files(const std::string& path, Faults& faults, int& sources) {
  std::vector<RecipeNode> files;  // the named one first
  std::vector<std::string> seen, names;
  std::string next = path;
  Where asked{path, 0, 0};
  for (;;) {
    const std::string id = fs::weakly_canonical(next).string();
    names.push_back(next);
    if (std::find(seen.begin(), seen.end(), id) != seen.end()) {
      std::string chain = names[0];
      for (size_t i = 1; i < names.size(); ++i) chain += " -> " + names[i];
      faults.add(asked, "recipes extend each other in a circle: ", chain);
      faults.raise();
    }
    seen.push_back(id);
    faults.order(next);
    bool ok = false;
    const std::string text = read_text(next, ok);
    if (!ok) {
      faults.add(asked, "cannot read recipe '", next, "'");
      faults.raise();
    }
    // Numbers rise from the deepest file to the named one; the chain's length is not known yet, hence negative.
    files.push_back(parse_toml(text, next, -int(files.size())));
    check_format(files.back(), faults);
    const RecipeNode* below = files.back().find("extends");
    if (!below) break;
    if (!below->text()) {
      faults.add(below->where, "'extends' wants string but got ", type_name(below->type));
      break;
    }
    asked = below->where;
    next = (fs::path(next).parent_path() / *below->text()).lexically_normal().string();
  }
  sources = 1;
  RecipeNode root = std::move(files.back());
  for (size_t i = files.size() - 1; i-- > 0;) merge(root, std::move(files[i]));
  for (const char* own : {"extends", "kitbash"}) root.keys.erase(own);  // of one file, and judged there
  root.where = {path, 1, 1};
  return root;
}

}  // namespace kitbash
