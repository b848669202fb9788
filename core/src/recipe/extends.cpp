#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "recipe/keys.h"
#include "recipe/layered.h"

namespace kitbash {
namespace fs = std::filesystem;

void check_format(const RecipeNode& number, Faults& faults) {
  if (!number.is(RecipeNode::Type::integer))
    return faults.add(number.where, "'kitbash' wants int but got ", type_name(number.type),
                      "; write kitbash = ", kRecipeFormat);
  const int64_t v = std::get<int64_t>(number.value);
  if (v != kRecipeFormat)
    faults.add(number.where, "'kitbash' must be ", kRecipeFormat, ", the recipe format of this program, but got ", v);
}

std::optional<std::string> read_text(const std::string& path, std::string& why) {
  std::error_code e;
  if (path.empty()) return why = "has no name", std::nullopt;
  if (fs::is_directory(path, e)) return why = "is a folder", std::nullopt;
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in.good())
    return why = errno == ENOENT ? "does not exist" : kb::text("cannot be opened: ", std::strerror(errno)),
           std::nullopt;
  std::string text;
  for (char piece[16384]; in.good() && text.size() <= kMostBytes; text.append(piece, size_t(in.gcount())))
    in.read(piece, sizeof piece);
  if (in.bad()) return why = "cannot be read", std::nullopt;
  if (text.size() > kMostBytes) return why = kb::text("has more than ", kMostBytes, " bytes"), std::nullopt;
  return text;
}

RecipeNode load_files(const std::string& path, const std::string* given, Faults& faults, int& sources) {
  std::vector<RecipeNode> files;  // the named one first
  std::vector<std::string> seen, names;
  std::string next = path;
  Where asked;  // where a recipe below is named
  for (;;) {
    std::error_code none;
    const fs::path whole = fs::weakly_canonical(next, none);
    const std::string id = none ? next : whole.string();
    names.push_back(next);
    if (std::find(seen.begin(), seen.end(), id) != seen.end()) {
      std::string chain = names[0];
      for (size_t i = 1; i < names.size(); ++i) chain += " -> " + names[i];
      faults.add(asked, "recipes extend each other in a circle: ", chain);
      faults.raise();
    }
    seen.push_back(id);
    faults.order(next);
    std::string why;
    const std::optional<std::string> text = given && files.empty() ? *given : read_text(next, why);
    if (!text) {
      faults.add(asked, "[", next, "] the recipe must be a file that can be read but ", why);
      faults.raise();
    }
    // Numbers rise from the deepest file to the named one; the chain's length is not known yet, hence negative.
    files.push_back(parse_toml(*text, next, -int(files.size())));
    if (const RecipeNode* number = files.back().find("kitbash"))
      check_format(*number, faults);
    else
      faults.add(files.back().where, "a recipe needs 'kitbash = ", kRecipeFormat, "', the number of its format");
    const RecipeNode* below = files.back().find("extends");
    if (!below) break;
    if (!below->text()) {
      faults.add(below->where, "'extends' wants string but got ", type_name(below->type));
      faults.raise();  // what the recipe below holds would be missed next
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
