#include "data/missing.h"

#include <filesystem>

namespace kitbash {
namespace fs = std::filesystem;
namespace {

std::string dataset_of(const fs::path& file) {
  std::error_code e;
  for (fs::path at = file.parent_path(); at.has_relative_path(); at = at.parent_path())
    if (at.parent_path().filename() == "datasets" && fs::is_regular_file(at / "manifest.toml", e)) {
      const fs::path near = fs::proximate(at, e);
      return e || *near.begin() == ".." ? at.string() : near.string();
    }
  return "";
}

}  // namespace

std::vector<MissingFile> missing_files(const ComponentConfig& c) {
  std::vector<MissingFile> r;
  for (size_t i = 0; i < c.values.size(); ++i) {
    const auto* path = std::get_if<std::string>(&c.values[i]);
    std::error_code e;
    if (c.info->fields[i].type != "path" || !path || path->empty() || fs::exists(*path, e)) continue;
    r.push_back({c.info->fields[i].name, *path, dataset_of(*path)});
  }
  return r;
}

std::string prepare_command(const std::string& dataset) { return "kitbash data prepare " + dataset; }

}  // namespace kitbash
