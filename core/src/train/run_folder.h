// run_folder.h: what a run leaves behind: recipe.toml (resolved), metrics.jsonl, train.log, checkpoints/.
#pragma once
#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace kitbash {

class RunFolder {
 public:
  // Creates the folder. Throws if it holds a run and `resume` is false, or holds none and `resume` is true.
  RunFolder(std::string path, bool resume);
  const std::string& path() const { return path_; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  void write_recipe(const std::string& resolved);
  void metric(const nlohmann::json& line);  // appended and flushed
  void log(const std::string& line);        // with the time, UTC

 private:
  std::string path_;
  std::ofstream metrics_, log_;
};

}  // namespace kitbash
