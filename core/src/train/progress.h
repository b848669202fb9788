// progress.h: the live line of a run. On a terminal one line that is redrawn at most ten times a second; elsewhere a plain line
// at every log point; with json, one object a line. NO_COLOR and non-terminals get no escape codes.
#pragma once
#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace kitbash {

class Progress {
 public:
  explicit Progress(bool json);
  ~Progress();
  void step(const std::string& stage, int64_t step, int64_t steps, double loss, double tokens_per_second,
            double seconds_left, bool log_point);
  void say(const std::string& line);    // a line that stays
  void event(const nlohmann::json& e);  // printed with json only
  bool json() const { return json_; }

 private:
  void clear();
  bool json_, terminal_, drawn_ = false;
  std::chrono::steady_clock::time_point last_{};
};

std::string duration_text(double seconds);  // "3 m 20 s"

}  // namespace kitbash
