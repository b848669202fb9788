// sha256.h: SHA-256 (FIPS 180-4).
#pragma once
#include <string>
#include <string_view>

namespace kitbash {

std::string sha256(std::string_view bytes);           // 64 lower-case digits
std::string sha256_of_file(const std::string& path);  // throws kb::Error with KB_IO

}  // namespace kitbash
