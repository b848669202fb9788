#include "base/text.h"

namespace kitbash {

std::vector<std::string> split(std::string_view s, char separator) {
  std::vector<std::string> parts;
  for (size_t from = 0;;) {
    const size_t at = s.find(separator, from);
    parts.emplace_back(s.substr(from, at == s.npos ? s.npos : at - from));
    if (at == s.npos) return parts;
    from = at + 1;
  }
}

std::string join(const std::vector<std::string>& parts, std::string_view between) {
  std::string s;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i) s += between;
    s += parts[i];
  }
  return s;
}

std::string trim(std::string_view s) {
  const char* blanks = " \t\r\n";
  const size_t from = s.find_first_not_of(blanks);
  if (from == s.npos) return "";
  return std::string(s.substr(from, s.find_last_not_of(blanks) - from + 1));
}

size_t invalid_utf8(std::string_view s) {
  for (size_t i = 0; i < s.size();) {
    const auto c = static_cast<unsigned char>(s[i]);
    if (c < 0x80) {
      ++i;
      continue;
    }
    const size_t n = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
    if (c < 0xC2 || c > 0xF4 || i + n > s.size()) return i;
    uint32_t code = c & (0xFF >> (n + 1));
    for (size_t k = 1; k < n; ++k) {
      const auto next = static_cast<unsigned char>(s[i + k]);
      if ((next & 0xC0) != 0x80) return i;
      code = code << 6 | (next & 0x3F);
    }
    const bool overlong = (n == 3 && code < 0x800) || (n == 4 && code < 0x10000);
    if (overlong || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return i;
    i += n;
  }
  return s.npos;
}

size_t code_points(std::string_view s) {
  size_t n = 0;
  for (char c : s) n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return n;
}

}  // namespace kitbash
