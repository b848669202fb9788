// layered.h: a recipe's files and --sets laid over each other.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "recipe/faults.h"
#include "recipe/tree.h"

namespace kitbash {

constexpr size_t kMostBytes = size_t(4) << 20;  // of a recipe
// A file's text, of a recipe's size at most. When it cannot be read: nothing, and `why` continues "must be a file that can
// be read but ".
std::optional<std::string> read_text(const std::string& path, std::string& why);

// The file, what it extends, and so on, merged: the named file wins. Throws RecipeErrors when one cannot be read or
// parsed. With `text` the first one is not read: `path` only names it.
RecipeNode load_files(const std::string& path, const std::string* text, Faults& faults, int& sources);
// The number of the recipe format, as a file or a --set gives it.
void check_format(const RecipeNode& number, Faults& faults);

// Applies "model.dim=8" and "curriculum.0.lr=1e-3" in order. Paths to tables that cannot be are faults; a key that no
// table has is found later, by the check, at the same place.
void apply_sets(RecipeNode& root, const std::vector<std::string>& set, Faults& faults, int& sources);

}  // namespace kitbash
