// bench_backend_cuda_attention: attention and its gradients on training shapes, by every kernel that takes them; and over a cache.
#include "attention_cuda.h"
#include "attention_kernels.h"
#include "tests/support/attention_shapes.h"

namespace {
using kb::attention_bench::Array;
using kb::attention_bench::random;

// Given any word, only our fastest kernels, and their gradients one by one.
void bench(const kb::attention_bench::Shape& s, bool only_ours) {
  kb::attention_bench::Problem p(s);
  p.run(kb::kernel_table<kb::cuda::Attention>());
  const kb_kernel* back = kb::kernel_table<kb::cuda::AttentionBackwardWgmma>();
  if (!only_ours) {
    p.time_forward(kb::kernel_table<kb::cuda::Attention>());
    p.time_backward(kb::kernel_table<kb::cuda::AttentionBackward>());
  }
  p.time_forward(kb::kernel_table<kb::cuda::AttentionWgmma>());
  p.time_backward(back);
  if (only_ours) {
    kbtest::Options o;
    o.unwanted = 6, p.time_backward(back, 2, 1, o);  // dq alone
    o.unwanted = 1, p.time_backward(back, 2, 2, o);  // dk and dv
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
  if (!kbtest::have_device()) {
    std::printf("there is no CUDA device\n");
    return 0;
  }
  bench_cached("32 x 1 after 8000, 32 x 576", 32, 8000, 1, 32, 576);
  bench_cached("1 x 1 after 8000, 8 x 320", 1, 8000, 1, 8, 320);
  bench_cached("1 x 4096, 8 x 320", 1, 0, 4096, 8, 320);
  bench_cached("1 x 4096, 32 x 576", 1, 0, 4096, 32, 576);
  for (const auto& s : kb::attention_bench::shapes()) bench(s, n > 1);
}
