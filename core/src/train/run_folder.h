// run_folder.h: what a run leaves behind: recipe.toml (resolved), metrics.jsonl, train.log, checkpoints/, lock.
#pragma once
#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "checkpoint/run_lock.h"

namespace kitbash {

// A resolved recipe without the keys of [train] that change no number of the training (log_every, checkpoint_every, keep,
// eval_tokens): a run may be resumed with others.
std::string without_run_keys(const std::string& resolved);

class RunFolder {
 public:
  // Creates the folder and keeps it from other processes. Throws if it holds a run and `resume` is false, or if it is not there
  // or a folder of something else and `resume` is true (a run that ended before its first line is resumed from nothing).
  RunFolder(std::string path, bool resume);
  const std::string& path() const { return path_; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  void write_recipe(const std::string& resolved);
  // Appended and flushed, as the others; each throws kb::Error with KB_IO when the disk does not take it.
  void metric(const nlohmann::json& line);
  // The lines so far, less those after `step`, which a resumed run writes again (and less a last one that was cut off).
  std::vector<nlohmann::json> keep_metrics(int64_t step);
  void log(const std::string& line);  // with the time, UTC

 private:
  void open();
  std::string path_;
  RunLock lock_;
  std::ofstream metrics_, log_;
};

}  // namespace kitbash
