#include "base/sha256.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace kitbash {
namespace {

// The first 32 bits of the fraction of the square or cube roots of the first primes. Exact in long double (64 bits).
template <size_t N>
std::array<uint32_t, N> fractions(long double (*root)(long double)) {
  std::array<uint32_t, N> r{};
  size_t n = 0;
  for (uint32_t p = 2; n < N; ++p) {
    bool prime = true;
    for (uint32_t d = 2; d * d <= p; ++d) prime = prime && p % d;
    if (!prime) continue;
    const long double x = root(p);
    r[n++] = uint32_t((x - std::floor(x)) * 4294967296.0L);
  }
  return r;
}

void block(std::array<uint32_t, 8>& h, const unsigned char* p) {
  static const auto k = fractions<64>([](long double x) { return std::cbrt(x); });
  uint32_t w[64];
  for (int i = 0; i < 16; ++i)
    w[i] = uint32_t(p[4 * i]) << 24 | uint32_t(p[4 * i + 1]) << 16 | uint32_t(p[4 * i + 2]) << 8 | p[4 * i + 3];
  for (int i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  auto s = h;
  for (int i = 0; i < 64; ++i) {
    const uint32_t e = s[4], a = s[0];
    const uint32_t t1 = s[7] + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & s[5]) ^ (~e & s[6])) +
                        k[size_t(i)] + w[i];
    const uint32_t t2 =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
    s = {t1 + t2, s[0], s[1], s[2], s[3] + t1, s[4], s[5], s[6]};
  }
  for (size_t i = 0; i < 8; ++i) h[i] += s[i];
}

}  // namespace

std::string sha256(std::string_view bytes) {
  auto h = fractions<8>([](long double x) { return std::sqrt(x); });
  const auto* p = reinterpret_cast<const unsigned char*>(bytes.data());
  size_t left = bytes.size();
  for (; left >= 64; left -= 64, p += 64) block(h, p);
  unsigned char end[128] = {};  // the rest, a one bit, zeros, the length in bits
  if (left) std::memcpy(end, p, left);
  end[left] = 0x80;
  const size_t size = left < 56 ? 64 : 128;
  for (size_t i = 0; i < 8; ++i) end[size - 1 - i] = static_cast<unsigned char>(uint64_t(bytes.size()) * 8 >> (8 * i));
  for (size_t i = 0; i < size; i += 64) block(h, end + i);
  std::string hex;
  for (const uint32_t v : h)
    for (int i = 28; i >= 0; i -= 4) hex += "0123456789abcdef"[v >> i & 15];
  return hex;
}

}  // namespace kitbash
