// tree.h: TOML as our own tree. Every key and value remembers where it was written, so that merging files keeps
// positions.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace kitbash {

struct RecipeNode {
  enum class Type { table, array, boolean, integer, real, text, other };
  Type type = Type::table;
  Where key, where;  // of its key, of its value
  int source = 0;    // number of the file or --set that wrote the value; a later one is higher
  // The `use` that was in force in the table where this key was written. When the final `use` is another one, the slot
  // was switched from outside and this key is judged mildly (check.h). None: the slot had no `use` of its own.
  std::optional<std::string> beside;
  FieldValue value;                        // of boolean, integer, real, text
  std::map<std::string, RecipeNode> keys;  // of a table
  std::vector<RecipeNode> items;           // of an array

  bool is(Type t) const { return type == t; }
  const RecipeNode* find(const std::string& name) const;
  const std::string* text() const;         // null: not a string
  std::optional<std::string> use() const;  // the name in key `use` of a table
  static RecipeNode table_at(const Where& w, int source);
};

const char* type_name(RecipeNode::Type t);  // as messages name it: "int", "string"

// `text` is what the file at `path` holds; throws RecipeErrors with the position of a syntax error.
RecipeNode parse_toml(const std::string& text, const std::string& path, int source);
// The value of a --set: a TOML value, else a string as it stands.
RecipeNode parse_value(const std::string& text, const Where& where, int source);

// Lays `over` on `base`: tables merge, everything else is replaced, and the short form of a slot (a string) becomes
// { use = ... } where it meets a table. With `fresh` = a source, a `use` written by that source that differs from the
// one below replaces the whole slot instead of switching it.
void merge(RecipeNode& base, RecipeNode over, int fresh = -1);
RecipeNode as_slot(RecipeNode text);  // "bounded" -> { use = "bounded" }

}  // namespace kitbash
