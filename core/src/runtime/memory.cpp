#include "runtime/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "kitbash/op.h"
#include "runtime/device.h"

namespace kitbash {

Block::Block(int64_t bytes, const Device* device, bool zeroed)
    : bytes_(std::max<int64_t>(bytes, 64)), device_(device && device->own_memory() ? device : nullptr) {
  if (device_) {
    data_ = device_->alloc(bytes_, zeroed);
    return;
  }
  void* p = mmap(nullptr, size_t(bytes_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    kb::fail("[memory] ", bytes_, " bytes must be available but the system refused: ", std::strerror(errno));
  data_ = static_cast<char*>(p);
  // A model walks through its memory by rows that lie pages apart. A wish: without large pages everything works, slower.
  if (bytes_ >= int64_t(4) << 20) madvise(p, size_t(bytes_), MADV_HUGEPAGE);
}
Block::~Block() {
  if (data_ && device_)
    device_->release(data_);
  else if (data_)
    munmap(data_, size_t(bytes_));
}

void StoreMemory::allocate() {
  std::vector<const StoreEntry*> fresh;
  int64_t total = 0;
  for (const StoreEntry& e : store_.entries())
    if (!at_.count(e.name)) fresh.push_back(&e), total += (e.bytes() + 63) / 64 * 64;
  if (fresh.empty()) return;
  blocks_.emplace_back(total, device_);
  bytes_ += total;
  char* p = blocks_.back().data();
  for (const StoreEntry* e : fresh) {
    at_[e->name] = p;
    p += (e->bytes() + 63) / 64 * 64;
    if (e->fill != 0) fill(e->name);  // memory starts as zero
  }
}

char* StoreMemory::at(const std::string& name) const {
  auto p = at_.find(name);
  if (p == at_.end()) kb::fail("[store] there is no value '", name, "'");
  return p->second;
}

void StoreMemory::fill(const std::string& name) {
  const StoreEntry& e = *store_.find(name);
  if (device_)
    device_->fill(at(name), e.type.dtype, kb::elements(e.type), e.fill);
  else
    fill_elements(at(name), e.type.dtype, kb::elements(e.type), e.fill);
}

void StoreMemory::read(const std::string& name, void* host, int64_t offset, int64_t bytes) const {
  if (device_)
    device_->download(host, at(name) + offset, bytes);
  else
    std::memcpy(host, at(name) + offset, size_t(bytes));
}
void StoreMemory::write(const std::string& name, const void* host, int64_t offset, int64_t bytes) {
  if (device_)
    device_->upload(at(name) + offset, host, bytes);
  else
    std::memcpy(at(name) + offset, host, size_t(bytes));
}
std::vector<char> StoreMemory::bytes_of(const std::string& name) const {
  std::vector<char> all(size_t(store_.find(name)->bytes()));
  read(name, all.data(), 0, int64_t(all.size()));
  return all;
}
const char* StoreMemory::view(const std::string& name, std::vector<char>& room) const {
  return view(name, 0, store_.find(name)->bytes(), room);
}
const char* StoreMemory::view(const std::string& name, int64_t offset, int64_t bytes, std::vector<char>& room) const {
  if (!device_ || !device_->own_memory()) return at(name) + offset;
  room.resize(std::max(room.size(), size_t(bytes)));
  read(name, room.data(), offset, bytes);
  return room.data();
}

void Arena::reserve(int64_t bytes, const Device* device) {
  if (bytes > want_ && !block_.empty()) kb::fail("[arena] programs must be reserved before the first is bound");
  want_ = std::max(want_, bytes);
  device_ = device;
}
char* Arena::data() {
  if (block_.empty()) block_.emplace_back(want_, device_, false);
  return block_[0].data();
}

uint16_t to_bf16(float v) {
  const auto u = std::bit_cast<uint32_t>(v);
  if ((u & 0x7fffffffu) > 0x7f800000u) return 0x7fff;  // NaN stays NaN
  return uint16_t((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

void fill_elements(void* data, uint32_t dtype, int64_t n, double v) {
  if (v == 0) {
    std::memset(data, 0, size_t(n) * dtype_bytes(dtype));
    return;
  }
  switch (dtype) {
    case KB_U8:
      std::fill_n(static_cast<uint8_t*>(data), n, uint8_t(v));
      break;
    case KB_I32:
      std::fill_n(static_cast<int32_t*>(data), n, int32_t(v));
      break;
    case KB_I64:
      std::fill_n(static_cast<int64_t*>(data), n, int64_t(v));
      break;
    case KB_F32:
      std::fill_n(static_cast<float*>(data), n, float(v));
      break;
    case KB_F64:
      std::fill_n(static_cast<double*>(data), n, v);
      break;
    case KB_BF16:
      std::fill_n(static_cast<uint16_t*>(data), n, to_bf16(float(v)));
      break;
    default:
      kb::fail("dtype ", dtype, " cannot be filled");
  }
}

double read_element(const void* data, uint32_t dtype, int64_t i) {
  switch (dtype) {
    case KB_U8:
      return static_cast<const uint8_t*>(data)[i];
    case KB_I32:
      return static_cast<const int32_t*>(data)[i];
    case KB_I64:
      return double(static_cast<const int64_t*>(data)[i]);
    case KB_F32:
      return double(static_cast<const float*>(data)[i]);
    case KB_F64:
      return static_cast<const double*>(data)[i];
    case KB_BF16:
      return double(std::bit_cast<float>(uint32_t(static_cast<const uint16_t*>(data)[i]) << 16));
    default:
      kb::fail("dtype ", dtype, " cannot be read");
  }
}

}  // namespace kitbash
