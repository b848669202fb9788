#include "train/run_folder.h"

#include <chrono>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "kitbash/error.h"

namespace kitbash {

namespace fs = std::filesystem;

RunFolder::RunFolder(std::string path, bool resume) : path_(std::move(path)) {
  const bool used = fs::exists(path_ + "/metrics.jsonl");
  if (used && !resume)
    kb::fail("[train] ", path_, " must be a new folder but holds a run; continue it with --resume, or choose another --run");
  if (!used && resume) kb::fail("[train] --resume needs a folder with a run but ", path_, " holds none");
  std::error_code e;
  fs::create_directories(checkpoints(), e);
  if (e) throw kb::Error("[train] " + path_ + " must be writable: " + e.message(), KB_IO);
  metrics_.open(path_ + "/metrics.jsonl", std::ios::app);
  log_.open(path_ + "/train.log", std::ios::app);
  if (!metrics_ || !log_) throw kb::Error("[train] " + path_ + " must be writable", KB_IO);
}

void RunFolder::write_recipe(const std::string& resolved) {
  const std::string temp = path_ + "/recipe.toml.tmp";
  std::ofstream(temp) << resolved;
  fs::rename(temp, path_ + "/recipe.toml");
}

void RunFolder::metric(const nlohmann::json& line) { metrics_ << line.dump() << "\n" << std::flush; }

void RunFolder::log(const std::string& line) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  char at[32];
  std::strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  log_ << at << " " << line << "\n" << std::flush;
}

}  // namespace kitbash
