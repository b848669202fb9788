// order.h: which sample comes next, as pure functions of a few numbers. No array of a source's length is ever held.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace kitbash {

uint64_t mix_bits(uint64_t x);                            // splitmix64: every bit of x moves every bit of the result
uint64_t mix_bits(uint64_t seed, std::string_view name);  // a seed of its own for each name

// Where `index` in [0, count) goes in the permutation of [0, count) that `seed` picks: a Feistel network over the next
// power of four, walked until it lands in range (fewer than four steps on average).
int64_t permuted(uint64_t seed, int64_t index, int64_t count);

// The source of the n-th draw: point n of a golden-ratio sequence on the unit circle, which is divided by `weight`. Every
// stretch of m draws has close to m * weight[i] / sum of each source (off by O(log m)), from wherever it starts: so a stage
// with another mix needs no history. Weights above 0.
size_t drawn_source(uint64_t seed, int64_t n, const std::vector<double>& weight);

}  // namespace kitbash
