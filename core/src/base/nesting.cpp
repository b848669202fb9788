#include "base/nesting.h"

#include "kitbash/error.h"

namespace kitbash {
namespace {

bool bare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

// The end of the string that begins at `i`, behind its last quote; a text cut short ends it too.
size_t string_end(std::string_view s, size_t i) {
  const char quote = s[i];
  const std::string three(3, quote);
  const bool lines = s.substr(i, 3) == three;
  for (i += lines ? 3 : 1; i < s.size(); ++i) {
    if (quote == '"' && s[i] == '\\') {
      ++i;
    } else if (lines ? s.substr(i, 3) == three : s[i] == quote) {
      i += lines ? 3 : 1;
      while (lines && i < s.size() && s[i] == quote) ++i;  // up to two quotes may precede the last three
      return i;
    } else if (!lines && s[i] == '\n') {
      return i;
    }
  }
  return s.size();
}

}  // namespace

std::optional<TooDeep> too_deep(std::string_view s) {
  TooDeep at;
  size_t line_start = 0, names = 1, brackets = 0;
  const auto found = [&](size_t i, const std::string& message) {
    at.column = int(i - line_start) + 1;
    at.message = message;
    return at;
  };
  for (size_t i = 0; i < s.size();) {
    const char c = s[i];
    if (c == '"' || c == '\'') {
      const size_t end = string_end(s, i);
      for (; i < end; ++i)
        if (s[i] == '\n') ++at.line, line_start = i + 1;
      continue;
    }
    if (c == '#') {
      while (i < s.size() && s[i] != '\n') ++i;
      continue;
    }
    if (c == '.') {
      if (++names > kMostNames)
        return found(i, kb::text("a key must have at most ", kMostNames, " names between its dots but has more"));
    } else if (!bare(c) && c != ' ' && c != '\t') {
      names = 1;
    }
    if (c == '[' || c == '{') {
      if (++brackets > kMostBrackets)
        return found(i, kb::text("at most ", kMostBrackets, " brackets may be open at once but there are more"));
    } else if ((c == ']' || c == '}') && brackets) {
      --brackets;
    }
    if (c == '\n') ++at.line, line_start = i + 1;
    ++i;
  }
  return std::nullopt;
}

}  // namespace kitbash
