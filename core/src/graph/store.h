// store.h: the named values that outlive a program: parameters, states of every life, gradient accumulators. Programs declare
// what they use; equal declarations from several programs are one entry.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kitbash/abi.h"

namespace kitbash {

// The lives of kb_life, and the two that only the core declares.
enum class Life : uint8_t { model, step, optimizer, sequence, token, param, accumulator };
const char* life_name(Life l);

struct StoreEntry {
  std::string name;
  kb_type type{};
  Life life = Life::param;
  double fill = 0;  // states: the value before the first step; parameters start from their init program instead
  uint32_t role = KB_OTHER, flags = 0;
  int64_t blocks = 1, active = 0;  // kb_param
  int64_t bytes() const;
};

class Store {
 public:
  // Adds the entry, or checks that it equals the one already there; throws kb::Error naming both shapes otherwise.
  StoreEntry& declare(const StoreEntry& e);
  const StoreEntry* find(const std::string& name) const;
  const std::vector<StoreEntry>& entries() const { return entries_; }
  int64_t bytes(Life l) const;

 private:
  std::vector<StoreEntry> entries_;
  std::map<std::string, size_t> index_;
};

// Where the optimiser keeps the wide value of a parameter that the model reads in bf16. A checkpoint has one tensor for both:
// the wide one, under the parameter's name.
std::string master_name(const std::string& parameter);
// The parameter of a master; empty: `entry` is none.
std::string mastered_parameter(const std::string& entry);

size_t dtype_bytes(uint32_t dtype);
int64_t type_bytes(const kb_type& t);     // of the dense tensor at its bounds
std::string type_text(const kb_type& t);  // "f32 [2048, 128]"
kb_type make_type(uint32_t dtype, const std::vector<int64_t>& shape, uint32_t extent = 0);
bool same_shape(const kb_type& a, const kb_type& b);

}  // namespace kitbash
