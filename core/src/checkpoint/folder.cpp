#include "checkpoint/folder.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <tuple>

#include "kitbash/error.h"

namespace kitbash {

namespace fs = std::filesystem;

std::string step_name(int64_t step) {
  char s[40];
  std::snprintf(s, sizeof s, "step-%08lld", static_cast<long long>(step));
  return s;
}

int64_t step_of(const std::string& name) {
  if (!name.starts_with("step-") || name.size() < 13 || name.size() > 23) return -1;
  if (name.find_first_not_of("0123456789", 5) != std::string::npos) return -1;
  const int64_t step = std::strtoll(name.c_str() + 5, nullptr, 10);
  return step_name(step) == name ? step : -1;
}

std::vector<std::string> names_in(const std::string& path) {
  std::error_code e;
  std::vector<std::string> names;
  fs::directory_iterator i(path, e);
  if (e == std::errc::no_such_file_or_directory) return names;
  for (; !e && i != fs::directory_iterator(); i.increment(e)) names.push_back(i->path().filename().string());
  if (e) throw kb::Error("[" + path + "] cannot be read: " + e.message(), KB_IO);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<FolderEntry> read_folder(const std::string& path) {
  std::vector<FolderEntry> all;
  for (const std::string& name : names_in(path)) {
    FolderEntry e{name, step_of(name), false};
    e.unfinished = name == "latest.tmp" || (name.ends_with(".tmp") && step_of(name.substr(0, name.size() - 4)) >= 0);
    all.push_back(e);
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return std::tie(a.step, a.name) < std::tie(b.step, b.name); });
  return all;
}

}  // namespace kitbash
