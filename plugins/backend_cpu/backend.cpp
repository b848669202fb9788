// backend.cpp: the CPU backend as a plugin: its kernels, and the table that opens the device.
#include <cstring>

#include "kernels.h"
#include "kitbash/plugin.h"
#include "team.h"

namespace {
const void* extension(const char* name) {
  return std::strcmp(name, "kitbash.backend") == 0 ? kb::cpu::backend_table() : nullptr;
}
}  // namespace

KITBASH_PLUGIN_WITH(extension, "backend-cpu", "0.1.0", "Apache-2.0", KB_PRODUCT_KERNELS, KB_ELEMENT_KERNELS)
