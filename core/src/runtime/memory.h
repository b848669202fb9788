// memory.h: the two blocks that programs work in: the store (what outlives a program) and the arena (what does not).
#pragma once
#include <map>
#include <string>
#include <vector>

#include "graph/store.h"

namespace kitbash {

class Block {  // zeroed pages of the process, 64-byte aligned, touched on first use
 public:
  explicit Block(int64_t bytes);
  Block(Block&& o) noexcept : data_(o.data_), bytes_(o.bytes_) { o.data_ = nullptr; }
  Block(const Block&) = delete;
  ~Block();
  char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  char* data_ = nullptr;
  int64_t bytes_ = 0;
};

class StoreMemory {
 public:
  explicit StoreMemory(const Store& store) : store_(store) {}
  // Gives memory to the entries that have none yet and sets them to their fill; addresses never change.
  void allocate();
  char* at(const std::string& name) const;
  void fill(const std::string& name);  // back to the entry's fill
  int64_t bytes() const { return bytes_; }
  const Store& store() const { return store_; }

 private:
  const Store& store_;
  std::vector<Block> blocks_;
  std::map<std::string, char*> at_;
  int64_t bytes_ = 0;
};

// Memory that programs share in turn; grows to the largest of them before any is bound.
class Arena {
 public:
  void reserve(int64_t bytes);
  char* data();
  int64_t bytes() const { return want_; }

 private:
  int64_t want_ = 0;
  std::vector<Block> block_;
};

// Sets n elements of the dtype to v.
void fill_elements(void* data, uint32_t dtype, int64_t n, double v);
double read_element(const void* data, uint32_t dtype, int64_t i);

}  // namespace kitbash
