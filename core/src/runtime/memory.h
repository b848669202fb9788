// memory.h: the two blocks that programs work in: the store (what outlives a program) and the arena (what does not).
#pragma once
#include <map>
#include <string>
#include <vector>

#include "graph/store.h"

namespace kitbash {

class Device;

// Memory of the device that is zero at first, or whose contents are undefined. On the host: pages of the process, zeroed, and
// touched on first use; 64-byte aligned at least.
class Block {
 public:
  explicit Block(int64_t bytes, const Device* device = nullptr, bool zeroed = true);  // device null: the host
  Block(Block&& o) noexcept : data_(o.data_), bytes_(o.bytes_), device_(o.device_) { o.data_ = nullptr; }
  Block(const Block&) = delete;
  ~Block();
  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  int64_t bytes_ = 0;
  const Device* device_ = nullptr;  // null: the host
};

class StoreMemory {
 public:
  explicit StoreMemory(const Store& store, const Device* device = nullptr) : store_(store), device_(device) {}
  // Gives memory to the entries that have none yet and sets them to their fill; addresses never change.
  void allocate();
  char* at(const std::string& name) const;  // in the device's memory
  bool has(const std::string& name) const { return at_.count(name) > 0; }
  void fill(const std::string& name);  // back to the entry's fill
  // Bytes of an entry, from `offset` on, to and from the host.
  void read(const std::string& name, void* host, int64_t offset, int64_t bytes) const;
  void write(const std::string& name, const void* host, int64_t offset, int64_t bytes);
  std::vector<char> bytes_of(const std::string& name) const;
  // What the host sees of an entry, or of a part: its memory on the CPU, a copy in `room` otherwise.
  const char* view(const std::string& name, std::vector<char>& room) const;
  const char* view(const std::string& name, int64_t offset, int64_t bytes, std::vector<char>& room) const;
  int64_t bytes() const { return bytes_; }
  const Store& store() const { return store_; }

 private:
  const Store& store_;
  const Device* device_;
  std::vector<Block> blocks_;
  std::map<std::string, char*> at_;
  int64_t bytes_ = 0;
};

// Memory that programs share in turn; grows to the largest of them before any is bound.
class Arena {
 public:
  void reserve(int64_t bytes, const Device* device = nullptr);
  char* data();
  int64_t bytes() const { return want_; }

 private:
  int64_t want_ = 0;
  const Device* device_ = nullptr;
  std::vector<Block> block_;
};

// Sets n elements of the dtype to v.
void fill_elements(void* data, uint32_t dtype, int64_t n, double v);
uint16_t to_bf16(float v);  // rounds to nearest, ties to even
double read_element(const void* data, uint32_t dtype, int64_t i);

}  // namespace kitbash
