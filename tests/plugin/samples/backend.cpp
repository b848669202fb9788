// A backend that is named for one device and built for another.
#include "kitbash/plugin.h"

namespace {
const kb_backend backend = [] {
  kb_backend b{};
  b.struct_size = KB_STRUCT_SIZE(kb_backend, close);
  b.kind = KB_CUDA;
  b.open = [](int32_t, kb_device*, kb_error*) { return int(KB_OK); };
  b.close = [](kb_device*) {};
  return b;
}();
const void* extension(const char* name) { return std::strcmp(name, "kitbash.backend") ? nullptr : &backend; }
}  // namespace

KITBASH_PLUGIN_WITH(extension, "backend-cpu", "0.1.0", "Apache-2.0")
