// The kb_backend table on a real GPU: memory, copies in order, tails, and a recording whose middle part a flag decides.
#include "device.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/support/device_call.h"

namespace kb::cuda {
namespace {

struct Gpu {
  const kb_backend& b = *backend_table();
  kb_device d{};
  kb_error e{};
  std::vector<void*> blocks;
  Gpu() {
    d.struct_size = KB_STRUCT_SIZE(kb_device, nccl);
    if (b.open(0, &d, &e)) throw Error(e.message);
  }
  ~Gpu() {
    for (void* p : blocks) b.release(&d, p);
    b.close(&d);
  }
  void ok(int rc) {
    if (rc) throw Error(e.message);
  }
  template <class T>
  T* put(const std::vector<T>& v) {
    void* p = nullptr;
    ok(b.alloc(&d, v.size() * sizeof(T), &p, &e));
    blocks.push_back(p);
    ok(b.upload(&d, p, v.data(), v.size() * sizeof(T), &e));
    return static_cast<T*>(p);
  }
  template <class T>
  std::vector<T> get(const T* p, size_t n) {
    std::vector<T> v(n);
    ok(b.download(&d, v.data(), p, n * sizeof(T), &e));
    return v;
  }
};

TEST(CudaDevice, uploads_more_than_its_staging_holds_and_copies_in_order) {
  KB_NEEDS_DEVICE();
  Gpu g;
  std::vector<int32_t> v(20u << 20);  // 80 MiB
  std::iota(v.begin(), v.end(), 7);
  int32_t* p = g.put(v);
  EXPECT_EQ(g.get(p, v.size()), v);
  g.ok(g.b.copy(&g.d, p, p + 1000, 4000, &g.e));
  EXPECT_EQ(g.get(p, 1)[0], 1007);
}

TEST(CudaDevice, fills_every_width_and_clears_from_the_extent_on) {
  KB_NEEDS_DEVICE();
  Gpu g;
  float* f = g.put(std::vector<float>(1003, 1));
  const float half = 0.5f;
  g.ok(g.b.fill(&g.d, f, 1000, 4, &half, &g.e));
  EXPECT_EQ(g.get(f, 1001)[999], 0.5f);
  EXPECT_EQ(g.get(f, 1001)[1000], 1.f);
  const uint16_t bits = 0x3f80;
  g.ok(g.b.fill(&g.d, f, 4, 2, &bits, &g.e));
  EXPECT_EQ(g.get(reinterpret_cast<uint16_t*>(f), 5), (std::vector<uint16_t>{bits, bits, bits, bits, 0}));
  const int32_t* used = g.put(std::vector<int32_t>{0, 3});
  for (const uint64_t row : {1, 3, 4, 12, 16, 100}) {
    uint8_t* rows = g.put(std::vector<uint8_t>(10 * row + 1, 9));
    g.ok(g.b.clear_tail(&g.d, rows, 10, row, used + 1, &g.e));
    const auto now = g.get(rows, 10 * row + 1);
    for (size_t i = 0; i < now.size(); ++i) EXPECT_EQ(now[i], i < 3 * row || i == 10 * row ? 9 : 0) << row << " " << i;
  }
}

TEST(CudaDevice, replays_what_lies_under_a_condition_only_when_the_flag_says_so) {
  KB_NEEDS_DEVICE();
  Gpu g;
  float* x = g.put(std::vector<float>{1, 2, 3, 4});
  float* flag = g.put(std::vector<float>{0});
  float* next = g.put(std::vector<float>{0});
  const float five = 5, six = 6;
  g.ok(g.b.record(&g.d, &g.e));
  g.ok(g.b.copy(&g.d, flag, next, 4, &g.e));  // the part before decides
  g.ok(g.b.only_if(&g.d, flag, &g.e));
  g.ok(g.b.fill(&g.d, x, 1, 4, &five, &g.e));
  g.ok(g.b.copy(&g.d, x + 1, x, 4, &g.e));
  g.ok(g.b.always(&g.d, &g.e));
  g.ok(g.b.fill(&g.d, x + 2, 1, 4, &six, &g.e));
  g.ok(g.b.fill(&g.d, x + 3, 4, 1, "\0", &g.e));
  void* graph = nullptr;
  g.ok(g.b.recorded(&g.d, &graph, &g.e));
  EXPECT_EQ(g.get(x, 4), (std::vector<float>{1, 2, 3, 4})) << "recorded, not done";
  g.ok(g.b.replay(&g.d, graph, &g.e));
  EXPECT_EQ(g.get(x, 4), (std::vector<float>{1, 2, 6, 0}));
  const float one = 1;
  g.ok(g.b.upload(&g.d, next, &one, 4, &g.e));
  g.ok(g.b.replay(&g.d, graph, &g.e));
  EXPECT_EQ(g.get(x, 4), (std::vector<float>{5, 5, 6, 0}));
  g.b.discard(&g.d, graph);
}

TEST(CudaDevice, says_how_much_is_free_when_there_is_too_little) {
  KB_NEEDS_DEVICE();
  Gpu g;
  void* p = nullptr;
  EXPECT_EQ(g.b.alloc(&g.d, uint64_t(1) << 45, &p, &g.e), KB_UNSUPPORTED);
  EXPECT_NE(std::string(g.e.message).find("35184372088832 bytes must be free on the GPU but "), std::string::npos)
      << g.e.message;
  EXPECT_EQ(g.get(g.put(std::vector<float>{3}), 1)[0], 3) << "and goes on";
}

TEST(CudaDevice, drops_a_recording_and_times_what_it_runs) {
  KB_NEEDS_DEVICE();
  Gpu g;
  float* x = g.put(std::vector<float>(1 << 20, 1));
  g.ok(g.b.record(&g.d, &g.e));
  g.ok(g.b.fill(&g.d, x, 1, 4, "\0\0\0", &g.e));
  g.ok(g.b.recorded(&g.d, nullptr, &g.e));
  EXPECT_EQ(g.get(x, 1)[0], 1);
  g.ok(g.b.stamp(&g.d, 0, &g.e));
  g.ok(g.b.copy(&g.d, x, x + (1 << 19), 4 << 19, &g.e));
  g.ok(g.b.stamp(&g.d, 1, &g.e));
  double seconds = 0;
  g.ok(g.b.elapsed(&g.d, 0, 1, &seconds, &g.e));
  EXPECT_GT(seconds, 0);
  EXPECT_LT(seconds, 0.1);
}

}  // namespace
}  // namespace kb::cuda
