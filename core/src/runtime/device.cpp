#include "runtime/device.h"

#include <cstring>

#include "kitbash/error.h"
#include "runtime/memory.h"

namespace kitbash {

namespace {
void ok(int rc, const kb_error& e) {
  if (rc) throw kb::Error(std::string("[device] ") + e.message, uint32_t(rc));
}
}  // namespace

Device::Device(Registry& registry, kb_device_kind kind, int threads, bool deterministic)
    : registry_(registry), backend_(registry.backend(kind)) {
  device_.struct_size = KB_STRUCT_SIZE(kb_device, nccl);
  kb_error e{};
  ok(backend_.open(threads, &device_, &e), e);
  device_.kind = kind;
  device_.deterministic = deterministic;
  own_memory_ = KB_HAS(kb_backend, &backend_, discard) && backend_.alloc;
}

Device::~Device() { backend_.close(&device_); }

int64_t Device::free_bytes() const {
  if (!own_memory_) return -1;
  uint64_t free = 0, total = 0;
  kb_error e{};
  ok(backend_.memory(&device_, &free, &total, &e), e);
  return int64_t(free);
}
int64_t Device::used_bytes() const {
  if (!own_memory_) return -1;
  uint64_t free = 0, total = 0;
  kb_error e{};
  ok(backend_.memory(&device_, &free, &total, &e), e);
  return int64_t(total - free);
}

char* Device::alloc(int64_t bytes, bool zeroed) const {
  void* p = nullptr;
  kb_error e{};
  ok(backend_.alloc(&device_, uint64_t(bytes), &p, &e), e);
  if (zeroed) fill_bytes(p, bytes, 0);
  return static_cast<char*>(p);
}
void Device::release(char* p) const {
  if (p) backend_.release(&device_, p);
}

void Device::upload(void* to, const void* host, int64_t bytes) const {
  if (!own_memory_) {
    std::memcpy(to, host, size_t(bytes));
    return;
  }
  kb_error e{};
  ok(backend_.upload(&device_, to, host, uint64_t(bytes), &e), e);
}
void Device::download(void* host, const void* from, int64_t bytes) const {
  if (!own_memory_) {
    std::memcpy(host, from, size_t(bytes));
    return;
  }
  kb_error e{};
  ok(backend_.download(&device_, host, from, uint64_t(bytes), &e), e);
}
void Device::copy(void* to, const void* from, int64_t bytes) const {
  if (!own_memory_) {
    std::memcpy(to, from, size_t(bytes));
    return;
  }
  kb_error e{};
  ok(backend_.copy(&device_, to, from, uint64_t(bytes), &e), e);
}

void Device::fill(void* to, uint32_t dtype, int64_t n, double v) const {
  if (!own_memory_) return fill_elements(to, dtype, n, v);
  char one[8] = {};
  fill_elements(one, dtype, 1, v);
  kb_error e{};
  ok(backend_.fill(&device_, to, uint64_t(n), uint32_t(dtype_bytes(dtype)), one, &e), e);
}
void Device::fill_bytes(void* to, int64_t bytes, unsigned char v) const {
  if (!own_memory_) {
    std::memset(to, v, size_t(bytes));
    return;
  }
  kb_error e{};
  ok(backend_.fill(&device_, to, uint64_t(bytes), 1, &v, &e), e);
}

void Device::clear_tail(void* data, int64_t rows, int64_t row_bytes, const int32_t* used) const {
  kb_error e{};
  ok(backend_.clear_tail(&device_, data, uint64_t(rows), uint64_t(row_bytes), used, &e), e);
}
void Device::wait() const {
  if (!own_memory_) return;
  kb_error e{};
  ok(backend_.wait(&device_, &e), e);
}
void Device::stamp(uint32_t index) const {
  kb_error e{};
  ok(backend_.stamp(&device_, index, &e), e);
}
double Device::elapsed(uint32_t from, uint32_t to) const {
  kb_error e{};
  double seconds = 0;
  ok(backend_.elapsed(&device_, from, to, &seconds, &e), e);
  return seconds;
}

void Device::record() const {
  kb_error e{};
  ok(backend_.record(&device_, &e), e);
}
void Device::only_if(const float* flag) const {
  kb_error e{};
  ok(backend_.only_if(&device_, flag, &e), e);
}
void Device::always() const {
  kb_error e{};
  ok(backend_.always(&device_, &e), e);
}
void* Device::recorded() const {
  kb_error e{};
  void* graph = nullptr;
  ok(backend_.recorded(&device_, &graph, &e), e);
  return graph;
}
void Device::drop_record() const noexcept {
  kb_error e{};
  backend_.recorded(&device_, nullptr, &e);
}
void Device::replay(void* graph) const {
  kb_error e{};
  ok(backend_.replay(&device_, graph, &e), e);
}

kb_device_kind device_kind(const std::string& name) {
  if (name == "cpu") return KB_CPU;
  if (name == "cuda") return KB_CUDA;
  kb::fail("[device] --device must be cpu or cuda but got '", name, "'");
}
const char* device_name(kb_device_kind kind) { return kind == KB_CPU ? "cpu" : "cuda"; }

}  // namespace kitbash
