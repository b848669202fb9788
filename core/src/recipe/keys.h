// keys.h: the keys of the core's own tables (model, layers, train, data, curriculum), declared once. Keys of components are
// declared once in their plugin's schema; both are checked by the same code.
#pragma once
#include <string>
#include <vector>

#include "plugin/manifest.h"

namespace kitbash {

// Field types beyond those of a manifest: "table" (a table of its own), "tables" (an array of tables), "texts".
// `optional` on a key that is no slot: no fixed default, the doc says what it falls back to.
struct KeyTable {
  std::string name, owner;  // "curriculum", "a curriculum stage": the subject of its messages
  std::vector<FieldInfo> fields;
};
const std::vector<KeyTable>& key_tables();
const KeyTable& key_table(const std::string& name);  // recipe, model, layer, train, data, curriculum

constexpr int64_t kRecipeFormat = 1;

}  // namespace kitbash
