#include "data/order.h"

#include <numeric>

#include "kitbash/error.h"

namespace kitbash {

uint64_t mix_bits(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
uint64_t mix_bits(uint64_t seed, std::string_view name) {
  uint64_t h = mix_bits(seed);
  for (const char c : name) h = mix_bits(h ^ static_cast<unsigned char>(c));
  return h;
}

int64_t permuted(uint64_t seed, int64_t index, int64_t count) {
  if (index < 0 || index >= count) kb::fail("[data] an index must be in [0, ", count, ") but got ", index);
  int half = 1;
  while (half < 31 && (int64_t(1) << (2 * half)) < count) ++half;
  const uint64_t mask = (uint64_t(1) << half) - 1;
  uint64_t x = uint64_t(index);
  do {
    uint64_t left = x >> half, right = x & mask;
    for (uint64_t round = 0; round < 6; ++round) {
      const uint64_t next = left ^ (mix_bits(seed ^ mix_bits(right << 3 | round)) & mask);
      left = right, right = next;
    }
    x = left << half | right;
  } while (x >= uint64_t(count));
  return int64_t(x);
}

size_t drawn_source(uint64_t seed, int64_t n, const std::vector<double>& weight) {
  const uint64_t point = mix_bits(seed) + uint64_t(n) * 0x9e3779b97f4a7c15u;  // 2^64 / golden ratio, modulo one turn
  const double at = double(point >> 11) * 0x1p-53 * std::accumulate(weight.begin(), weight.end(), 0.0);
  double end = 0;
  for (size_t i = 0; i + 1 < weight.size(); ++i)
    if (at < (end += weight[i])) return i;
  return weight.size() - 1;
}

}  // namespace kitbash
