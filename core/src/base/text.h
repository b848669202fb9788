// text.h: small things on strings that the standard library lacks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kitbash {

std::vector<std::string> split(std::string_view s, char separator);  // "a,,b" -> a, "", b; "" -> one empty part
std::string join(const std::vector<std::string>& parts, std::string_view between);
std::string trim(std::string_view s);  // without blanks, tabs and line ends on either side

// Offset of the first byte that is not part of well-formed UTF-8 (overlong forms and surrogates are not); npos when all
// is well.
size_t invalid_utf8(std::string_view s);
size_t code_points(std::string_view s);  // of well-formed UTF-8

}  // namespace kitbash
