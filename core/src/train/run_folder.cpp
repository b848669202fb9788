#include "train/run_folder.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "kitbash/error.h"

namespace kitbash {

namespace fs = std::filesystem;

namespace {
std::string checked_path(std::string path, bool resume) {
  if (resume && !fs::exists(path)) kb::fail("[train] --resume needs the folder of a run but there is no ", path);
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
  if (!resume && fs::exists(path_ + "/metrics.jsonl"))
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
  metrics_ << line.dump() << "\n" << std::flush;
  check(metrics_, path_ + "/metrics.jsonl");
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
