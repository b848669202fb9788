// Times of depth_mix on the device against the bytes that have to move at 4.2 TB/s, which a large copy reaches on an H200.
#include <cstdio>
#include <map>

#include "depth_mix_cuda_kernels.h"
#include "tests/support/device_call.h"

namespace {

kbtest::Array cheap(uint32_t dtype, const kb::Shape& s, uint32_t seed) {  // numbers in (-2, 2), made quickly
  kbtest::Array a = kbtest::array(dtype, s);
  uint32_t x = seed * 2654435761u + 12345u;
  for (int64_t i = 0; i < a.size(); ++i) {
    x = x * 1664525u + 1013904223u;
    const float f = float(int32_t(x)) * (1.f / float(1 << 30));
    uint32_t bits;
    std::memcpy(&bits, &f, 4);
    if (dtype == KB_BF16)
      a.data<uint16_t>()[i] = uint16_t(bits >> 16);
    else
      a.data<float>()[i] = f;
  }
  return a;
}

void bench(int n, int64_t tokens, int64_t d, bool backward, bool add) {
  static std::map<int64_t, kbtest::Array> made;  // one for all sources: each has device memory of its own
  if (!made.count(tokens * d)) made[tokens * d] = cheap(KB_BF16, {tokens * d}, 1);
  kbtest::Array one = made[tokens * d];
  one.type.rank = 2, one.type.shape[0] = tokens, one.type.shape[1] = d;
  const kbtest::Array norm = cheap(KB_F32, {d}, 91), query = cheap(KB_F32, {d}, 92), &dh = one;
  std::vector<const kbtest::Array*> in;
  for (int i = 0; i < n; ++i) in.push_back(&one);
  in.push_back(&norm), in.push_back(&query);
  const double row = double(tokens) * double(d) * 2;
  std::vector<kbtest::Array> out;
  kbtest::Options o;
  double bytes = row * (n + 1);
  if (backward) {
    in.push_back(&dh);
    out.assign(size_t(n), one);
    out.push_back(norm), out.push_back(query);
    if (add) o.accumulate = (1u << n) - 1;
    bytes += row * (add ? 2 * n : n);
  } else {
    out = {dh, kbtest::array(KB_F32, {tokens, n})};
    bytes += 4.0 * double(tokens) * n;
  }
  const std::vector<kb_attr> attrs{kb::default_attr("eps", 1e-5)};
  kbtest::DeviceCall call(backward ? kb::kernel_table<DepthMixBackwardCuda>() : kb::kernel_table<DepthMixCuda>(), attrs,
                          in, out, o);
  const double ms = kbtest::median_ms([&] { call.launch(); }, 20, 3), floor = bytes / 4.2e9;
  printf("depth_mix%s n=%d tokens=%lld d=%lld%s: %.4f ms, %.0f GB/s, floor %.4f ms (%.0f %%)\n",
         backward ? "_backward" : "", n, static_cast<long long>(tokens), static_cast<long long>(d),
         add ? " adding" : "", ms, bytes / ms * 1e-6, floor, 100 * floor / ms);
  fflush(stdout);
}

}  // namespace

int main() {
  if (!kbtest::have_device()) return puts("there is no CUDA device"), 0;
  for (int n : {9, 5, 2}) bench(n, 8192, 7168, false, false);
  for (int n : {9, 5, 4, 2}) bench(n, 32768, 1024, false, false);
  bench(5, 16384, 2048, false, false);
  for (bool add : {false, true}) {
    bench(9, 8192, 7168, true, add);
    for (int n : {9, 5, 3}) bench(n, 32768, 1024, true, add);
    bench(5, 16384, 2048, true, add);
  }
}
