// bench_backend_cuda_attention: attention and its gradients on training shapes, by every kernel that takes them. FLOPs count
// what a causal mask leaves: 2 products forward, 5 backward.
#include <cstring>

#include "attention_cuda.h"
#include "attention_kernels.h"
#include "tests/support/device_call.h"

namespace {
using kbtest::Array;
using kbtest::array;

struct Shape {
  const char* name;
  int64_t heads, d, e;
  std::vector<int64_t> lengths;
  int64_t documents;  // bound; 0: as many as there are
};

Array random(const kb::Shape& s, uint32_t seed) {  // bf16 uniform in (-1.7, 1.7): unit variance
  Array a = array(KB_BF16, s);
  uint32_t x = seed * 2654435761u + 1;
  for (int64_t i = 0; i < a.size(); ++i) {
    x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    const float v = float(int32_t(x)) * (1.7f / 2147483648.f);
    uint32_t bits;
    std::memcpy(&bits, &v, 4);
    a.data<uint16_t>()[i] = uint16_t(bits >> 16);
  }
  return a;
}

void line(const char* kernel, const Shape& s, double ms, double flops) {
  std::printf("%-26s %-28s %8.3f ms %6.0f TFLOP/s\n", kernel, s.name, ms, flops / ms * 1e-9);
  std::fflush(stdout);
}

void time_one(const kb_kernel* k, const std::vector<kb_attr>& attrs, const std::vector<const Array*>& in,
              const std::vector<Array>& out, const Shape& s, double flops, uint64_t unwanted = 0) {
  try {
    kbtest::Options o;
    o.unwanted = unwanted;
    kbtest::DeviceCall call(k, attrs, in, out, o);
    const double ms = kbtest::median_ms([&] { call.launch(); }, 10, 2);
    line(k->name, s, ms, flops);
  } catch (const std::exception& e) {
    std::printf("%-26s %-28s %s\n", k->name, s.name, e.what());
  }
}

bool only_ours = false;
void bench(const Shape& s) {
  int64_t tokens = 0;
  double pairs = 0;
  std::vector<double> cu{0};
  for (int64_t n : s.lengths) tokens += n, pairs += double(n) * double(n) / 2, cu.push_back(double(tokens));
  while (int64_t(cu.size()) <= s.documents) cu.push_back(double(tokens));
  const double d = double(s.d), e = double(s.e), unit = 2 * pairs * double(s.heads);
  const Array q = random({tokens, s.heads, s.d}, 1), k = random({tokens, s.heads, s.d}, 2),
              v = random({tokens, s.heads, s.e}, 3), up = random({tokens, s.heads, s.e}, 4),
              borders = array(KB_I32, {int64_t(cu.size())}, cu);
  const std::vector<kb_attr> attrs{kb::default_attr("scale", 1 / std::sqrt(d)), kb::default_attr("causal", true)};
  std::vector<Array> out{array(KB_BF16, {tokens, s.heads, s.e}), array(KB_F32, {tokens, s.heads}),
                         array(KB_F32, {s.heads})};
  kbtest::run_device(kb::kernel_table<kb::cuda::Attention>(), attrs, {&q, &k, &v, &borders}, out);
  const std::vector<const Array*> forward{&q, &k, &v, &borders}, backward{&q, &k, &v, &borders, &out[0], &out[1], &up};
  const std::vector<Array> down{q, k, v};
  time_one(kb::kernel_table<kb::cuda::Attention>(), attrs, forward, out, s, unit * (d + e));
  time_one(kb::kernel_table<kb::cuda::AttentionBackward>(), attrs, backward, down, s, unit * (3 * d + 2 * e));
  time_one(kb::kernel_table<kb::cuda::AttentionWgmma>(), attrs, forward, out, s, unit * (d + e));
  const kb_kernel* back = kb::kernel_table<kb::cuda::AttentionBackwardWgmma>();
  time_one(back, attrs, backward, down, s, unit * (3 * d + 2 * e));
  if (only_ours) {
    time_one(back, attrs, backward, down, s, unit * (2 * d + e), 6);
    time_one(back, attrs, backward, down, s, unit * (2 * d + 2 * e), 1);
    return;
  }
}

// `sequences` of `past` tokens each get `rows` new ones; keys are values, as in latent attention.
void bench_cached(const char* name, int64_t sequences, int64_t past, int64_t rows, int64_t heads, int64_t width) {
  const int64_t tokens = sequences * rows, capacity = past + rows;
  const Array q = random({tokens, heads, width}, 1), k = random({sequences, capacity, 1, width}, 2);
  const std::vector<int32_t> before(static_cast<size_t>(sequences), static_cast<int32_t>(past));
  std::vector<int32_t> cu;
  for (int64_t i = 0; i <= sequences; ++i) cu.push_back(int32_t(i * rows));
  kbtest::DeviceBytes dq(q.bytes.size()), dk(k.bytes.size()), dcu(cu.size() * 4), dpast(before.size() * 4),
      o(q.bytes.size());
  dq.from(q.bytes.data()), dk.from(k.bytes.data()), dcu.from(cu.data()), dpast.from(before.data());
  kb::cuda::CachedAttentionArgs a{tokens,
                                  sequences,
                                  heads,
                                  1,
                                  width,
                                  width,
                                  sequences,
                                  capacity,
                                  0.05f,
                                  true,
                                  dq.data(),
                                  dk.data(),
                                  dk.data(),
                                  static_cast<const int32_t*>(dcu.data()),
                                  static_cast<const int32_t*>(dpast.data()),
                                  nullptr,
                                  o.data(),
                                  nullptr};
  kbtest::DeviceBytes workspace(kb::cuda::cached_attention_bytes(a));
  a.workspace = workspace.data();
  const double ms = kbtest::median_ms([&] { kb::cuda::cached_attention(a, kbtest::cuda_stream()); }, 10, 2);
  const double pairs = double(tokens) * double(heads) * (double(past) + double(rows) / 2);
  std::printf("%-26s %-28s %8.3f ms %6.0f TFLOP/s %6.0f GB/s of cache\n", "attention_cached.cuda", name, ms,
              pairs * double(width) * 4 / ms * 1e-9, double(k.bytes.size()) / ms * 1e-6);
}

}  // namespace

int main(int n, char**) {
  only_ours = n > 1;
  if (!kbtest::have_device()) {
    std::printf("there is no CUDA device\n");
    return 0;
  }
  bench_cached("32 x 1 after 8000, 32 x 576", 32, 8000, 1, 32, 576);
  bench_cached("1 x 1 after 8000, 8 x 320", 1, 8000, 1, 8, 320);
  bench_cached("1 x 4096, 8 x 320", 1, 0, 4096, 8, 320);
  bench_cached("1 x 4096, 32 x 576", 1, 0, 4096, 32, 576);
  bench({"4 x 8192, h 8, 192/128", 8, 192, 128, {8192, 8192, 8192, 8192}, 0});
  bench({"same, room for 64 documents", 8, 192, 128, {8192, 8192, 8192, 8192}, 64});
  bench({"1 x 8192, h 32, 192/128", 32, 192, 128, {8192}, 0});
  bench({"6 ragged, 8192, h 32", 32, 192, 128, {3000, 1000, 500, 2192, 700, 800}, 0});
  bench({"1 x 8192, h 16, 128/128", 16, 128, 128, {8192}, 0});
  bench({"1 x 8192, h 16, 64/64", 16, 64, 64, {8192}, 0});
}
