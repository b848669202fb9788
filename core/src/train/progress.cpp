#include "train/progress.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

namespace kitbash {

Progress::Progress(bool json) : json_(json), terminal_(!json && isatty(STDOUT_FILENO)) {}
Progress::~Progress() { clear(); }

std::string duration_text(double s) {
  char t[48];
  if (s >= 3600)
    std::snprintf(t, sizeof t, "%d h %d m", int(s / 3600), int(s / 60) % 60);
  else if (s >= 60)
    std::snprintf(t, sizeof t, "%d m %d s", int(s / 60), int(s) % 60);
  else
    std::snprintf(t, sizeof t, "%d s", int(s + 0.5));
  return t;
}

void Progress::clear() {
  if (drawn_) std::fputs("\r\033[K", stdout);
  drawn_ = false;
}

void Progress::step(const std::string& stage, int64_t step, int64_t steps, double loss, double rate, double left,
                    bool log_point) {
  if (json_) return;
  const auto now = std::chrono::steady_clock::now();
  if (terminal_ && now - last_ < std::chrono::milliseconds(100) && step != steps) return;
  if (!terminal_ && !log_point) return;
  last_ = now;
  char line[160];
  if (!terminal_) {
    std::snprintf(line, sizeof line, "%-6s step %lld/%lld  loss %.4f  %.0f tokens/s  %s left", stage.c_str(),
                  (long long)step, (long long)steps, loss, rate, duration_text(left).c_str());
    std::puts(line);
    std::fflush(stdout);
    return;
  }
  constexpr int width = 24;
  const int full = steps ? int(width * step / steps) : 0;
  const std::string bar = std::string(size_t(full), '#') + std::string(size_t(width - full), '.');
  std::snprintf(line, sizeof line, "\r\033[K%s [%s] %lld/%lld  loss %.3f  %.0f tokens/s  %s left  ", stage.c_str(),
                bar.c_str(), (long long)step, (long long)steps, loss, rate, duration_text(left).c_str());
  std::fputs(line, stdout);
  std::fflush(stdout);
  drawn_ = true;
}

void Progress::say(const std::string& line) {
  if (json_) return;
  clear();
  std::puts(line.c_str());
  std::fflush(stdout);
}

void Progress::event(const nlohmann::json& e) {
  if (!json_) return;
  std::puts(e.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  std::fflush(stdout);
}

}  // namespace kitbash
