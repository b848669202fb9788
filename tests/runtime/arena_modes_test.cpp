// The three arenas give equal bits, run after run: planned bytes are shared only where nobody can tell.
#include <cmath>
#include <random>

#include "tests/passes/random_graph.h"
#include "tests/runtime/fixture.h"

namespace kitbash {
namespace {

using test::Machine;
using test::RandomGraph;
using test::Running;

struct Result {
  std::map<std::string, std::vector<float>> numbers;
  bool operator==(const Result& o) const {
    if (numbers.size() != o.numbers.size()) return false;
    for (const auto& [name, v] : numbers)
      if (v.size() != o.numbers.at(name).size() || std::memcmp(v.data(), o.numbers.at(name).data(), v.size() * 4))
        return false;
    return true;
  }
};

// Builds the graph of the seed on the machine, runs it twice, and gives all that it leaves.
Result run(uint32_t seed, bool segments, ArenaMode mode, int threads) {
  Machine m({}, threads);
  RandomGraph source(seed, m.registry, m.store);
  source.training(1 + int(seed % 4), segments);
  Running r(std::move(source.g), m, mode);
  std::mt19937 random(seed);
  for (const auto& [name, v] : r.program.graph().inputs) {
    std::vector<float> numbers(size_t(kb::elements(r.program.graph().type(v))));
    for (float& x : numbers) x = std::uniform_real_distribution<float>(-0.5, 0.5)(random);
    r.feed(name, numbers);
  }
  r.program.run();
  r.program.run();
  Result out;
  out.numbers["loss"] = r.output("loss");
  for (const StoreEntry& e : m.store.entries()) out.numbers[e.name] = r.stored(e.name);
  return out;
}

TEST(ArenaModes, give_equal_bits_with_and_without_recompute) {
  for (uint32_t seed = 0; seed < 25; ++seed) {
    const Result plain = run(seed, false, ArenaMode::planned, 2);
    ASSERT_TRUE(std::isfinite(plain.numbers.at("loss")[0])) << "seed " << seed;
    for (bool segments : {false, true})
      for (ArenaMode mode : {ArenaMode::planned, ArenaMode::separate, ArenaMode::poison})
        EXPECT_TRUE(run(seed, segments, mode, 2) == plain)
            << "seed " << seed << ", segments " << segments << ", mode " << int(mode);
  }
}

TEST(ArenaModes, give_close_numbers_on_other_thread_counts) {
  for (uint32_t seed = 0; seed < 8; ++seed) {
    const Result two = run(seed, true, ArenaMode::planned, 2), one = run(seed, true, ArenaMode::planned, 1);
    for (const auto& [name, v] : two.numbers) {
      double largest = 1e-3;
      for (float x : v) largest = std::max(largest, double(std::abs(x)));
      for (size_t i = 0; i < v.size(); ++i)  // sums of up to 128 terms in another order
        EXPECT_NEAR(v[i], one.numbers.at(name)[i], 1e-5 * largest) << name << "[" << i << "], seed " << seed;
    }
  }
}

}  // namespace
}  // namespace kitbash
