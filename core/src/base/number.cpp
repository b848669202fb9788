#include "base/number.h"

#include <cmath>
#include <cstdio>
#include <iterator>

namespace kitbash {
namespace {

// Three significant digits, never in exponent form; a whole number below the first step has no decimals.
std::string digits(double v) {
  const double a = std::fabs(v);
  const int decimals = v == std::floor(v) && a < 1000 ? 0 : a >= 99.95 ? 0 : a >= 9.995 ? 1 : 2;
  char s[64];
  std::snprintf(s, sizeof s, "%.*f", decimals, v);
  return s;
}

template <size_t N>
std::string stepped(double v, double step, const char* const (&units)[N]) {
  if (!std::isfinite(v)) return std::isnan(v) ? "nan" : v < 0 ? "-inf" : "inf";
  size_t unit = 0;
  // Half a unit of the third digit early: 999.6 K reads 1.00 M.
  const double enough = step == 1000 ? 999.5 : 1023.5;
  while (std::fabs(v) >= enough && unit + 1 < N) v /= step, ++unit;
  std::string s;
  if (unit == 0) {
    s = digits(v);
  } else {
    const double a = std::fabs(v);
    char b[64];
    std::snprintf(b, sizeof b, "%.*f", a >= 99.95 ? 0 : a >= 9.995 ? 1 : 2, v);
    s = b;
  }
  if (*units[unit]) s += std::string(" ") + units[unit];
  return s;
}

}  // namespace

std::string human_count(double v) {
  static constexpr const char* units[] = {"", "K", "M", "B", "T", "P"};
  return stepped(v, 1000, units);
}
std::string human_bytes(double v) {
  static constexpr const char* units[] = {"B", "KB", "MB", "GB", "TB", "PB"};
  return stepped(v, 1000, units);
}
std::string human_binary(double v) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  return stepped(v, 1024, units);
}

}  // namespace kitbash
