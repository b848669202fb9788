#include "runtime/device.h"

#include "kitbash/error.h"

namespace kitbash {

Device::Device(Registry& registry, kb_device_kind kind, int threads)
    : registry_(registry), backend_(registry.backend(kind)) {
  device_.struct_size = KB_STRUCT_SIZE(kb_device, nccl);
  kb_error e{};
  if (int rc = backend_.open(threads, &device_, &e))
    throw kb::Error(std::string("[device] ") + e.message, uint32_t(rc));
  device_.kind = kind;
  device_.deterministic = 1;
}

Device::~Device() { backend_.close(&device_); }

}  // namespace kitbash
