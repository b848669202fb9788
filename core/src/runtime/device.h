// device.h: an opened backend, and its memory. A device with memory of its own (CUDA) is asked through the backend; on the CPU
// device memory is the host's. Everything is in order on the device's one stream.
#pragma once
#include "plugin/registry.h"

namespace kitbash {

class Device {
 public:
  // threads 0: all cores. deterministic false: kernels may also add in an order that differs from run to run.
  Device(Registry& registry, kb_device_kind kind, int threads, bool deterministic = true);
  Device(const Device&) = delete;
  ~Device();
  const kb_device& table() const { return device_; }
  kb_device_kind kind() const { return kb_device_kind(device_.kind); }
  Registry& registry() { return registry_; }

  bool own_memory() const { return own_memory_; }
  int64_t free_bytes() const;                     // -1: not known
  int64_t used_bytes() const;                     // by anyone; -1: not known
  char* alloc(int64_t bytes, bool zeroed) const;  // own_memory only
  void release(char* p) const;
  void upload(void* to, const void* host, int64_t bytes) const;
  void download(void* host, const void* from, int64_t bytes) const;  // waits
  void copy(void* to, const void* from, int64_t bytes) const;
  void fill(void* to, uint32_t dtype, int64_t n, double v) const;
  void fill_bytes(void* to, int64_t bytes, unsigned char v) const;
  void clear_tail(void* data, int64_t rows, int64_t row_bytes,
                  const int32_t* used) const;  // own_memory only, as what follows
  void wait() const;
  void stamp(uint32_t index) const;
  double elapsed(uint32_t from, uint32_t to) const;
  // abi.h, kb_backend: record .. discard.
  void record() const;
  void only_if(const float* flag) const;
  void always() const;
  void* recorded() const;
  void drop_record() const noexcept;
  void replay(void* graph) const;
  void discard(void* graph) const { backend_.discard(&device_, graph); }

 private:
  Registry& registry_;
  const kb_backend& backend_;
  kb_device device_{};
  bool own_memory_ = false;
};

// "cpu", "cuda"; throws for another.
kb_device_kind device_kind(const std::string& name);
const char* device_name(kb_device_kind kind);

}  // namespace kitbash
