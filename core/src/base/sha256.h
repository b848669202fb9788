// sha256.h: SHA-256 (FIPS 180-4).
#pragma once
#include <string>
#include <string_view>

namespace kitbash {

std::string sha256(std::string_view bytes);  // 64 lower-case digits

}  // namespace kitbash
