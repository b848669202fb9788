#include "train/run_folder.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kitbash/error.h"

namespace kitbash {

namespace fs = std::filesystem;

namespace {
// A run that could not begin leaves a lock and empty files, and is none.
bool holds_run(const std::string& path) {
  std::error_code e;
  const auto lines = fs::file_size(path + "/metrics.jsonl", e);
  return fs::exists(path + "/recipe.toml") || (!e && lines > 0) ||
         (fs::is_directory(path + "/checkpoints", e) && !fs::is_empty(path + "/checkpoints", e));
}
std::string checked_path(std::string path, bool resume) {
  std::error_code e;
  if (!resume) return path;
  if (!fs::exists(path, e)) kb::fail("[train] --resume needs the folder of a run but there is no ", path);
  // Killed at its very start a run leaves no more than a lock.
  if (!fs::is_directory(path, e) || (!fs::exists(path + "/lock", e) && !holds_run(path) && !fs::is_empty(path, e)))
    kb::fail("[train] --resume needs the folder of a run but ", path, " is none; name the folder that --run named");
  return path;
}
void check(const std::ofstream& f, const std::string& path) {
  if (!f) throw kb::Error("[" + path + "] cannot be written: " + std::strerror(errno), KB_IO);
}
void replace(const std::string& path, const std::string& text) {
  const std::string temp = path + ".tmp";
  std::ofstream f(temp, std::ios::binary);
  f << text << std::flush;
  check(f, temp);
  f.close();
  fs::rename(temp, path);
}
}  // namespace

RunFolder::RunFolder(std::string path, bool resume) : path_(checked_path(std::move(path), resume)), lock_(path_) {
  if (!resume && holds_run(path_))
    kb::fail("[train] ", path_,
             " must be a new folder but holds a run; continue it with --resume, or choose another --run");
  std::error_code e;
  fs::create_directories(checkpoints(), e);
  if (e) throw kb::Error("[train] " + path_ + " must be writable: " + e.message(), KB_IO);
  open();
}

void RunFolder::open() {
  metrics_ = std::ofstream(path_ + "/metrics.jsonl", std::ios::app);
  log_ = std::ofstream(path_ + "/train.log", std::ios::app);
  check(metrics_, path_ + "/metrics.jsonl");
  check(log_, path_ + "/train.log");
}

void RunFolder::write_recipe(const std::string& resolved) { replace(path_ + "/recipe.toml", resolved); }

void RunFolder::metric(const nlohmann::json& line) {
  metrics_ << line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n" << std::flush;
  check(metrics_, path_ + "/metrics.jsonl");
}

std::string without_run_keys(const std::string& resolved) {
  std::string kept, table;
  std::istringstream lines(resolved);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("[")) table = line;
    const std::string key = line.substr(0, line.find_first_of(" ="));
    const bool of_run = key == "log_every" || key == "checkpoint_every" || key == "keep" || key == "eval_tokens";
    if (!(table == "[train]" && of_run)) kept += line + "\n";
  }
  return kept;
}

std::vector<nlohmann::json> RunFolder::keep_metrics(int64_t step) {
  std::vector<nlohmann::json> kept;
  std::string text;
  std::ifstream f(path_ + "/metrics.jsonl");
  for (std::string line; std::getline(f, line);) {
    nlohmann::json j = nlohmann::json::parse(line, nullptr, false);
    if (!j.is_object() || j.value("step", step + 1) > step) continue;
    text += line + "\n";
    kept.push_back(std::move(j));
  }
  metrics_.close();
  replace(path_ + "/metrics.jsonl", text);
  open();
  return kept;
}

void RunFolder::log(const std::string& line) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  char at[32];
  std::strftime(at, sizeof at, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  log_ << at << " " << line << "\n" << std::flush;
  check(log_, path_ + "/train.log");
}

}  // namespace kitbash
