// nesting.h: how deep a TOML text nests, found by reading it once. The parser, our tree and both destructors go one call
// deeper with every level, so a text that nests without bound would end the program.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace kitbash {

constexpr size_t kMostNames = 32;     // in one dotted key
constexpr size_t kMostBrackets = 32;  // open at once

struct TooDeep {
  int line = 1, column = 1;
  std::string message;
};
// What lies in strings and comments does not count.
std::optional<TooDeep> too_deep(std::string_view text);

}  // namespace kitbash
