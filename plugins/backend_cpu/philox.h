// philox.h: Philox4x32-10 (Salmon et al., SC 2011), and how elements draw from it. Element i uses block i / 2 of key
// `seed`: counter {i/2 low, i/2 high, 0, 0}; its words are two 64-bit numbers, high word second. Every backend draws
// the same way.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>

namespace kb::cpu {

inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t(0xD2511F53u) * c[0], b = uint64_t(0xCD9E8D57u) * c[2];
    c = {uint32_t(b >> 32) ^ c[1] ^ key[0], uint32_t(b), uint32_t(a >> 32) ^ c[3] ^ key[1], uint32_t(a)};
    key[0] += 0x9E3779B9u, key[1] += 0xBB67AE85u;
  }
  return c;
}

struct Pair {
  double a, b;
};
// The two numbers in [0, 1) of a block, multiples of 2^-53.
inline Pair uniform_pair(uint64_t seed, uint64_t block) {
  const auto w = philox({uint32_t(block), uint32_t(block >> 32), 0, 0}, {uint32_t(seed), uint32_t(seed >> 32)});
  const auto unit = [](uint32_t low, uint32_t high) { return double((uint64_t(high) << 32 | low) >> 11) * 0x1p-53; };
  return {unit(w[0], w[1]), unit(w[2], w[3])};
}
// Box-Muller: elements 2 block (cosine) and 2 block + 1 (sine). 1 - u is never 0.
inline Pair normal_pair(uint64_t seed, uint64_t block) {
  const Pair u = uniform_pair(seed, block);
  const double r = std::sqrt(-2 * std::log1p(-u.a)), angle = 6.283185307179586476925 * u.b;
  return {r * std::cos(angle), r * std::sin(angle)};
}

}  // namespace kb::cpu
