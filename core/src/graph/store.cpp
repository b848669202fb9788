#include "graph/store.h"

#include <algorithm>
#include <cmath>

#include "kitbash/op.h"

namespace kitbash {

const char* life_name(Life l) {
  switch (l) {
    case Life::model:
      return "model";
    case Life::step:
      return "step";
    case Life::optimizer:
      return "optimizer";
    case Life::sequence:
      return "sequence";
    case Life::token:
      return "token";
    case Life::param:
      return "parameter";
    case Life::accumulator:
      return "accumulator";
  }
  return "?";
}

namespace {
const std::string master_prefix = "master.";
}
std::string master_name(const std::string& parameter) { return master_prefix + parameter; }
std::string mastered_parameter(const std::string& entry) {
  return entry.compare(0, master_prefix.size(), master_prefix) ? "" : entry.substr(master_prefix.size());
}

size_t dtype_bytes(uint32_t dtype) {
  switch (dtype) {
    case KB_U8:
      return 1;
    case KB_BF16:
      return 2;
    case KB_I32:
    case KB_F32:
      return 4;
    case KB_I64:
    case KB_F64:
      return 8;
    default:
      kb::fail("dtype ", dtype, " has no size");
  }
}

int64_t type_bytes(const kb_type& t) { return kb::elements(t) * int64_t(dtype_bytes(t.dtype)); }
int64_t StoreEntry::bytes() const { return type_bytes(type); }

std::string type_text(const kb_type& t) {
  std::string s = std::string(kb::dtype_name(t.dtype)) + " [";
  for (int i = 0; i < t.rank; ++i) s += (i ? ", " : "") + std::to_string(t.shape[i]);
  return s + "]";
}

kb_type make_type(uint32_t dtype, const std::vector<int64_t>& shape, uint32_t extent) {
  if (shape.size() > KB_MAX_RANK)
    kb::fail("a tensor must have at most ", KB_MAX_RANK, " axes but got ", shape.size(), "; reshape it");
  kb_type t{};
  t.dtype = dtype;
  t.rank = int32_t(shape.size());
  std::copy(shape.begin(), shape.end(), t.shape);
  t.lo = -INFINITY, t.hi = INFINITY;
  t.extent = extent;
  return t;
}

bool same_shape(const kb_type& a, const kb_type& b) {
  return a.rank == b.rank && std::equal(a.shape, a.shape + a.rank, b.shape);
}

StoreEntry& Store::declare(const StoreEntry& e) {
  auto [at, fresh] = index_.emplace(e.name, entries_.size());
  if (fresh) {
    entries_.push_back(e);
    return entries_.back();
  }
  StoreEntry& old = entries_[at->second];
  if (old.life != e.life)
    kb::fail("'", e.name, "' is already declared as ", life_name(old.life), " and cannot be ", life_name(e.life),
             " too");
  if (!same_shape(old.type, e.type) || old.type.dtype != e.type.dtype)
    kb::fail("'", e.name, "' is already declared as ", type_text(old.type), " but now as ", type_text(e.type));
  return old;
}

const StoreEntry* Store::find(const std::string& name) const {
  auto at = index_.find(name);
  return at == index_.end() ? nullptr : &entries_[at->second];
}

int64_t Store::bytes(Life l) const {
  int64_t n = 0;
  for (const auto& e : entries_)
    if (e.life == l) n += e.bytes();
  return n;
}

}  // namespace kitbash
