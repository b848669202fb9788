// missing.h: files that a component of a recipe names and that are not there, and how to make them.
#pragma once
#include <string>
#include <vector>

#include "recipe/recipe.h"

namespace kitbash {

struct MissingFile {
  std::string key, path;
  std::string prepare;  // the folder of a dataset that it belongs to: datasets/<name> with a manifest; empty: none
};
std::vector<MissingFile> missing_files(const ComponentConfig& c);
std::string prepare_command(const std::string& dataset);  // what to type

}  // namespace kitbash
