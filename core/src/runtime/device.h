// device.h: an opened backend.
#pragma once
#include "plugin/registry.h"

namespace kitbash {

class Device {
 public:
  Device(Registry& registry, kb_device_kind kind, int threads);  // threads 0: all cores
  Device(const Device&) = delete;
  ~Device();
  const kb_device& table() const { return device_; }
  kb_device_kind kind() const { return kb_device_kind(device_.kind); }
  Registry& registry() { return registry_; }

 private:
  Registry& registry_;
  const kb_backend& backend_;
  kb_device device_{};
};

}  // namespace kitbash
