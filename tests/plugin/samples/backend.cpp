// A backend that is named for one device and built for another.
#include "kitbash/plugin.h"

namespace {
const kb_backend backend{KB_STRUCT_SIZE(kb_backend, close), KB_CUDA,
                         [](int32_t, kb_device*, kb_error*) { return int(KB_OK); }, [](kb_device*) {}};
const void* extension(const char* name) { return std::strcmp(name, "kitbash.backend") ? nullptr : &backend; }
}  // namespace

KITBASH_PLUGIN_WITH(extension, "backend-cpu", "0.1.0", "Apache-2.0")
