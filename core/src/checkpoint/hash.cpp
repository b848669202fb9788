#include "checkpoint/hash.h"

#include <xxhash.h>

#include <cstring>
#include <new>

namespace kitbash {

struct Xxh3::State {
  XXH3_state_t* s = nullptr;
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) {
  state_->s = XXH3_createState();
  if (!state_->s) throw std::bad_alloc();
  XXH3_128bits_reset(state_->s);
}
Xxh3::~Xxh3() { XXH3_freeState(state_->s); }
void Xxh3::add(const void* data, size_t bytes) {
  if (bytes) XXH3_128bits_update(state_->s, data, bytes);
}
Digest Xxh3::digest() const {
  XXH128_canonical_t c;
  XXH128_canonicalFromHash(&c, XXH3_128bits_digest(state_->s));
  Digest d;
  std::memcpy(d.data(), c.digest, d.size());
  return d;
}

Digest xxh3(std::string_view bytes) {
  Xxh3 h;
  h.add(bytes.data(), bytes.size());
  return h.digest();
}

std::string hex(const Digest& d) {
  std::string s;
  for (uint8_t b : d) s += "0123456789abcdef"[b >> 4], s += "0123456789abcdef"[b & 15];
  return s;
}

}  // namespace kitbash
