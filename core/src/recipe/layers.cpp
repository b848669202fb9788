#include <algorithm>

#include "recipe/compose.h"
#include "recipe/keys.h"
#include "recipe/suggest.h"

namespace kitbash {
namespace {

struct Likes {
  const RecipeNode& layers;
  Faults& faults;
  std::map<std::string, RecipeNode> done;
  std::vector<std::string> open, names;
  std::vector<std::string>& order;  // a layer after the one it is like

  const RecipeNode& resolve(const std::string& name) {
    if (const auto i = done.find(name); i != done.end()) return i->second;
    const RecipeNode& own = layers.keys.at(name);
    RecipeNode result = own;
    const RecipeNode* like = own.find("like");
    if (own.is(RecipeNode::Type::table) && like && like->text()) {
      open.push_back(name);
      if (const RecipeNode* below = base(*like)) {
        result = *below;
        result.key = own.key, result.where = own.where;
        // Whoever wrote `like` knew the layer below: a slot with another `use` written there starts afresh. One that
        // came later, from another file or a --set, is a switch.
        merge(result, own, like->source);
      }
      open.pop_back();
    }
    result.keys.erase("like");
    order.push_back(name);
    return done[name] = std::move(result);
  }

  const RecipeNode* base(const RecipeNode& like) {
    const std::string& other = *like.text();
    if (!layers.find(other)) {
      std::vector<std::string> others;
      for (const auto& n : names)
        if (n != open.back()) others.push_back(n);
      faults.add(like.where, "there is no layer '", other, "'", did_you_mean_or_list(other, others));
      return nullptr;
    }
    const auto at = std::find(open.begin(), open.end(), other);
    if (at != open.end()) {
      std::string chain;
      for (auto i = at; i != open.end(); ++i) chain += *i + " -> ";
      faults.add(like.where, "layers are like each other in a circle: ", chain, other);
      return nullptr;
    }
    const RecipeNode& n = resolve(other);
    return n.is(RecipeNode::Type::table) ? &n : nullptr;
  }
};

}  // namespace

std::map<std::string, RecipeNode> named_layers(const RecipeNode& layers, Faults& faults,
                                               std::vector<std::string>& order) {
  Likes likes{layers, faults, {}, {}, {}, order};
  for (const auto& [name, node] : layers.keys) {
    likes.names.push_back(name);
    if (!node.is(RecipeNode::Type::table))
      faults.add(node.where, "layer '", name, "' wants table but got ", type_name(node.type));
    else if (const RecipeNode* like = node.find("like"); like && !like->text())
      faults.add(like->where, "'like' wants string but got ", type_name(like->type));
  }
  for (const auto& name : likes.names) likes.resolve(name);
  return std::move(likes.done);
}

}  // namespace kitbash
