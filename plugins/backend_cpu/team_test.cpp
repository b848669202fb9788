#include "team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <vector>

#include "kitbash/error.h"

namespace kb::cpu {
namespace {

struct Opened {
  kb_device device{};
  explicit Opened(int32_t threads) {
    device.struct_size = KB_STRUCT_SIZE(kb_device, nccl);
    kb_error e{};
    if (backend_table()->open(threads, &device, &e)) throw Error(e.message);
  }
  ~Opened() { backend_table()->close(&device); }
  template <class F>
  void parallel(int64_t n, int64_t grain, F f) {
    device.parallel(
        device.team, n, grain, [](void* p, int64_t b, int64_t e, int32_t t) { (*static_cast<F*>(p))(b, e, t); }, &f);
  }
};

TEST(Team, ZeroThreadsMeansAllCoresOfTheProcess) {
  EXPECT_EQ(Opened(0).device.threads, usable_cores());
  EXPECT_EQ(Opened(3).device.threads, 3);
  EXPECT_THROW(Opened(-1), Error);
}

TEST(Team, CoversEveryIndexOnceInPiecesOfAtLeastTheGrain) {
  for (int32_t threads : {1, 2, 3, 8}) {
    Opened team(threads);
    for (int64_t n : {0, 1, 2, 7, 100, 1001})
      for (int64_t grain : {1, 10, 2000}) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
        std::mutex lock;
        std::set<int32_t> workers;
        size_t pieces = 0;
        team.parallel(n, grain, [&](int64_t b, int64_t e, int32_t t) {
          EXPECT_TRUE(e - b >= grain || (b == 0 && e == n)) << b << " " << e;
          for (int64_t i = b; i < e; ++i) ++seen[size_t(i)];
          const std::lock_guard<std::mutex> hold(lock);
          workers.insert(t), ++pieces;
          EXPECT_TRUE(t >= 0 && t < threads) << t;
        });
        EXPECT_EQ(workers.size(), pieces);  // no two pieces share a worker's scratch
        for (const auto& s : seen) ASSERT_EQ(s.load(), 1);
      }
  }
}

TEST(Team, RethrowsTheFirstErrorAfterAllPiecesAreDone) {
  Opened team(4);
  std::atomic<int> done{0};
  try {
    team.parallel(4, 1, [&](int64_t b, int64_t, int32_t) {
      ++done;
      if (b >= 1) fail("piece ", b);
    });
    FAIL() << "the error was lost";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "piece 1");
  }
  EXPECT_EQ(done.load(), 4);
}

}  // namespace
}  // namespace kb::cpu
