// widens.h: whether a cast from one float type to another keeps every value.
#pragma once
#include "kitbash/abi.h"

namespace kitbash {

inline bool widens(uint32_t from, uint32_t to) {
  return (from == KB_BF16 && (to == KB_F32 || to == KB_F64)) || (from == KB_F32 && to == KB_F64);
}

}  // namespace kitbash
