// hash.h: the digest of a checkpoint, XXH3-128: it finds damage at memory speed. A plugin's library is named by base/sha256.h.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace kitbash {

using Digest = std::array<uint8_t, 16>;  // XXH3-128, canonical (big-endian) form
std::string hex(const Digest& d);        // as xxh128sum prints it

class Xxh3 {  // XXH3-128 of a stream of bytes
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(const Xxh3&) = delete;
  void add(const void* data, size_t bytes);
  Digest digest() const;  // of what was added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Digest xxh3(std::string_view bytes);

}  // namespace kitbash
