#include "base/sha256.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>

#include "kitbash/error.h"

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

class Sum {
 public:
  void add(const char* data, size_t n) {
    length_ += n;
    const auto* p = reinterpret_cast<const unsigned char*>(data);
    while (n) {
      const size_t take = std::min(n, sizeof rest_ - used_);
      std::memcpy(rest_ + used_, p, take);
      used_ += take, p += take, n -= take;
      if (used_ == sizeof rest_) block(h_, rest_), used_ = 0;
    }
  }
  std::string hex() {  // ends with a one bit, zeros, the length in bits
    const uint64_t bits = length_ * 8;
    const char one = char(0x80), zero = 0;
    add(&one, 1);
    while (used_ != 56) add(&zero, 1);
    char size[8];
    for (size_t i = 0; i < 8; ++i) size[i] = char(static_cast<unsigned char>(bits >> (56 - 8 * i)));
    add(size, 8);
    std::string s;
    for (const uint32_t v : h_)
      for (int i = 28; i >= 0; i -= 4) s += "0123456789abcdef"[v >> i & 15];
    return s;
  }

 private:
  std::array<uint32_t, 8> h_ = fractions<8>([](long double x) { return std::sqrt(x); });
  unsigned char rest_[64];
  size_t used_ = 0;
  uint64_t length_ = 0;
};

}  // namespace

std::string sha256(std::string_view bytes) {
  Sum s;
  s.add(bytes.data(), bytes.size());
  return s.hex();
}

std::string sha256_of_file(const std::string& path) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> f(std::fopen(path.c_str(), "rbe"), &std::fclose);
  if (!f) throw kb::Error("[" + path + "] cannot be opened: " + std::strerror(errno), KB_IO);
  Sum s;
  char buffer[65536];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, f.get())) s.add(buffer, n);
  if (std::ferror(f.get())) throw kb::Error("[" + path + "] cannot be read: " + std::strerror(errno), KB_IO);
  return s.hex();
}

}  // namespace kitbash
