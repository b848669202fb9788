// What `kitbash bench` counts.
#include "train/bench.h"

#include "fixture.h"

namespace kitbash::test {
namespace {

TEST(Bench, TheProductsOfATokenDependOnTheContextAndNotOnTheMicroBatch) {
  const Place p;
  const auto flops = [&](const std::string& micro, const std::string& context) {
    const Recipe r = p.recipe({"curriculum.1.batch_tokens=256", "curriculum.1.micro_tokens=" + micro,
                               "curriculum.1.context=" + context, "curriculum.1.max_documents=16"});
    Session s(r, registry(), 1, ArenaMode::planned);
    return bench_stage(s, r, r.curriculum[1], 1).product_flops;
  };
  const double once = flops("64", "64");
  EXPECT_GT(once, 0);
  // Rows of experts are rounded up to whole tiles, of which a larger micro-batch has fewer.
  EXPECT_NEAR(flops("256", "64"), once, 0.02 * once);
  EXPECT_LT(flops("64", "16"), 0.99 * once);
}

}  // namespace
}  // namespace kitbash::test
