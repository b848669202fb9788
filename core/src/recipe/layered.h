// layered.h: a recipe's files and --sets laid over each other.
#pragma once
#include <string>
#include <vector>

#include "recipe/faults.h"
#include "recipe/tree.h"

namespace kitbash {

// The file, what it extends, and so on, merged: the named file wins. Throws RecipeErrors when one cannot be read or
// parsed.
RecipeNode load_files(const std::string& path, Faults& faults, int& sources);
std::string read_text(const std::string& path, bool& ok);

// Applies "model.dim=8" and "curriculum.0.lr=1e-3" in order. Paths to tables that cannot be are faults; a key that no
// table has is found later, by the check, at the same place.
void apply_sets(RecipeNode& root, const std::vector<std::string>& set, Faults& faults, int& sources);

}  // namespace kitbash
