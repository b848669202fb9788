#include <charconv>

#include "base/nesting.h"
#include "base/text.h"
#include "recipe/layered.h"
#include "recipe/suggest.h"

namespace kitbash {
namespace {

struct Setter {
  const std::vector<std::string>& path;
  RecipeNode leaf;
  Where where;
  Faults& faults;

  void into(RecipeNode& at, size_t i) {
    if (i == path.size()) return merge(at, std::move(leaf));
    if (at.is(RecipeNode::Type::array)) return item(at, i);
    if (at.is(RecipeNode::Type::text)) at = as_slot(std::move(at));
    if (!at.is(RecipeNode::Type::table)) {  // the check then says what was wanted here
      const Where key = at.key;
      at = RecipeNode::table_at(where, leaf.source);
      at.key = key;
    }
    const auto use = at.use();
    const bool last = i + 1 == path.size();
    auto child = at.keys.find(path[i]);
    if (child == at.keys.end()) {
      if (!last) {
        RecipeNode table = RecipeNode::table_at(where, leaf.source);
        table.beside = use;
        child = at.keys.emplace(path[i], std::move(table)).first;
      } else {
        leaf.beside = use;
        at.keys.emplace(path[i], std::move(leaf));
        return;
      }
    }
    if (last) leaf.beside = use;
    into(child->second, i + 1);
    child->second.beside = use;
  }

  void item(RecipeNode& at, size_t i) {
    const std::string& s = path[i];
    const std::string name = join({path.begin(), path.begin() + i}, ".");
    size_t n = 0;
    const auto r = std::from_chars(s.data(), s.data() + s.size(), n);
    if (r.ec != std::errc() || r.ptr != s.data() + s.size())
      return faults.add(where, "'", name, "' is a list: write a number from 0 but got '", s, "'");
    if (n >= at.items.size())
      return faults.add(where, "'", name, "' has ", at.items.size(), " entries; there is no '", name, ".", n, "'");
    into(at.items[n], i + 1);
  }
};

// Enough of a long value to know it again in a message.
std::string shortened(const std::string& s) {
  size_t n = 120;
  if (s.size() <= n) return s;
  while (n && (static_cast<unsigned char>(s[n]) & 0xC0) == 0x80) --n;  // whole characters
  return s.substr(0, n) + "...";
}

// A --set changes what is there; it cannot invent a layer.
bool known_layer(const RecipeNode& root, const std::vector<std::string>& path, const Where& where, Faults& faults) {
  if (path.size() < 3 || path[0] != "model" || path[1] != "layer") return true;
  const RecipeNode* model = root.find("model");
  const RecipeNode* layers = model ? model->find("layer") : nullptr;
  if (layers && layers->find(path[2])) return true;
  std::vector<std::string> names;
  if (layers)
    for (const auto& [name, node] : layers->keys) names.push_back(name);
  faults.add(where, "there is no layer '", path[2], "'", did_you_mean_or_list(path[2], names));
  return false;
}

}  // namespace

void apply_sets(RecipeNode& root, const std::vector<std::string>& set, Faults& faults, int& sources) {
  for (const auto& s : set) {
    if (const size_t bad = invalid_utf8(s); bad != std::string::npos) {
      faults.add({"--set", 0, 0}, "a key and its value must be UTF-8 but byte ", bad + 1, " after '", s.substr(0, bad),
                 "' is not");
      continue;
    }
    const Where where{"--set " + shortened(s), 0, 0};
    faults.order(where.file);
    const size_t eq = s.find('=');
    if (eq == std::string::npos || eq == 0) {
      faults.add(where, "wants KEY=VALUE, as in --set model.dim=128");
      continue;
    }
    const auto path = split(s.substr(0, eq), '.');
    const auto deep = too_deep(s.substr(eq + 1));
    if (path.size() > kMostNames || deep) {
      faults.add(where, deep ? deep->message
                             : kb::text("a key must have at most ", kMostNames, " names between its dots but has ",
                                        path.size()));
      continue;
    }
    bool whole = true;
    for (const auto& p : path) whole = whole && !p.empty();
    if (!whole) {
      faults.add(where, "'", s.substr(0, eq), "' has an empty name between its dots");
      continue;
    }
    if (!known_layer(root, path, where, faults)) continue;
    Setter{path, parse_value(s.substr(eq + 1), where, sources++), where, faults}.into(root, 0);
  }
}

}  // namespace kitbash
