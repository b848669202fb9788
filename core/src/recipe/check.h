// check.h: data against data: a table of the recipe against the keys that a manifest (or the core) declares.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "recipe/faults.h"
#include "recipe/source.h"
#include "recipe/tree.h"

namespace kitbash {

// The values of a table of the core, by key; what is missing or wrong is a fault and has its default or a zero.
class Values {
 public:
  // `subject` of the sentence that a key is missing: by default the owner of the table of keys.
  Values(const std::string& key_table, const RecipeNode& node, Faults& faults, const std::string& subject = "");
  bool has(const std::string& key) const { return good_.count(key) != 0; }  // given or defaulted, and right
  bool given(const std::string& key) const { return node_.find(key) != nullptr; }
  int64_t integer(const std::string& key) const;
  double real(const std::string& key) const;
  bool boolean(const std::string& key) const;
  std::string text(const std::string& key) const;

 private:
  const RecipeNode& node_;
  std::map<std::string, FieldValue> good_;
};

struct Checker {
  const ComponentSource& source;
  Faults& faults;
  std::string folder;  // of the recipe: paths of a --set are relative to it

  // The component in a slot. `node` null: not given. `path` names the slot in notes: "model.residual". `standard`: what
  // fills it when nothing is named. Null: left empty, or a fault has been told.
  std::unique_ptr<ComponentConfig> slot(const std::string& kind, const RecipeNode* node, const std::string& path,
                                        const std::string& standard, int depth = 0) const;

 private:
  const ComponentInfo* find(const std::string& kind, const std::string& name, const Where& w) const;
  bool survives_switch(const ComponentInfo& now, const std::string& key, const RecipeNode& value,
                       const std::string& old_name, const std::string& path) const;
  std::vector<const RecipeNode*> match(const ComponentInfo& c, const RecipeNode& table, const std::string& path,
                                       const std::string& standard) const;
  std::unique_ptr<ComponentConfig> filled_slot(const ComponentInfo& c, const FieldInfo& f, const RecipeNode* given,
                                               const Where& missing_at, const std::string& path, int depth) const;
};

// One value against one key; false: a fault has been told. Slots and tables are not its business.
bool check_value(const FieldInfo& f, const RecipeNode& n, Faults& faults, FieldValue& out);
const FieldInfo* field_named(const std::vector<FieldInfo>& fields, const std::string& name);
FieldValue empty_value(const FieldInfo& f);
std::string number_text(double v);  // shortest text that reads back the same; always a TOML float

}  // namespace kitbash
