// Times of the element kernels at training sizes: median over CUDA events; GB/s of what must be read and written
// once, and its share of the device's copy bandwidth. Operands lie far apart in memory that is larger than the cache.
#include <cstdio>

#include "conv_kernels.h"
#include "loss_kernels.h"
#include "move_kernels.h"
#include "norm_kernels.h"
#include "pointwise_kernels.h"
#include "reduce_kernels.h"
#include "rows_kernels.h"
#include "sources_kernels.h"
#include "tests/support/device_call.h"

using namespace kb::cuda::element;
using kbtest::Array;

namespace {

constexpr double kCopy = 4200;  // GB/s that a copy reaches on an H200

// Device tensors without host contents: normal numbers, or integers below a limit.
struct Pool {
  std::vector<void*> memory;
  ~Pool() { clear(); }
  void clear() {
    for (void* p : memory) cudaFree(p);
    memory.clear();
  }
  kb_tensor make(uint32_t dtype, const kb::Shape& s) {
    const Array shape = [&] {
      Array a;
      a.type.dtype = dtype, a.type.rank = s.n;
      std::copy(s.at, s.at + s.n, a.type.shape);
      return a;
    }();
    void* p = nullptr;
    const size_t bytes = size_t(s.size()) * Array::width(dtype);
    KB_CUDA_OK(cudaMalloc(&p, bytes + 256));
    KB_CUDA_OK(cudaMemset(p, 0, bytes + 256));
    memory.push_back(p);
    return {p, shape.type, {}};
  }
  kb_tensor normal(uint32_t dtype, const kb::Shape& s) {
    const kb_tensor t = make(dtype, s);
    run(kb::kernel_table<NormalKernel>(),
        {kb::Attr("shape", s), kb::Attr("std", 1.0), kb::Attr("seed", int64_t(memory.size())),
         kb::Attr("dtype", int64_t(dtype))},
        {}, {t});
    return t;
  }
  kb_tensor ids(const kb::Shape& s, int64_t limit) {  // squares of uniform numbers: low ids are frequent
    const kb_tensor t = make(KB_I32, s);
    std::vector<int32_t> v(size_t(s.size()));
    std::mt19937_64 r(7);
    for (int32_t& x : v) {
      const double u = double(r() >> 11) * 0x1p-53;
      x = int32_t(u * u * double(limit));
    }
    KB_CUDA_OK(cudaMemcpy(t.data, v.data(), v.size() * 4, cudaMemcpyHostToDevice));
    return t;
  }
  kb_tensor list(const std::vector<int32_t>& v) {
    const kb_tensor t = make(KB_I32, {int64_t(v.size())});
    KB_CUDA_OK(cudaMemcpy(t.data, v.data(), v.size() * 4, cudaMemcpyHostToDevice));
    return t;
  }
  static void launch(const kb_kernel* k, kb_call& c) {
    kb_error e{};
    if (k->launch(nullptr, &c, &e)) throw kb::Error(e.message);
  }
  double run(const kb_kernel* k, const std::vector<kb_attr>& attrs, const std::vector<kb_tensor>& in,
             const std::vector<kb_tensor>& out, bool timed = false) {
    kb_call c{};
    c.struct_size = KB_STRUCT_SIZE(kb_call, device);
    c.attr = attrs.data(), c.n_attr = uint32_t(attrs.size());
    c.in = in.data(), c.n_in = uint32_t(in.size());
    c.out = out.data(), c.n_out = uint32_t(out.size());
    c.device = &kbtest::cuda_device();
    kb_error e{};
    if (k->supports && k->supports(&c, &e)) throw kb::Error(e.message);
    const uint64_t room = k->workspace ? k->workspace(&c) : 0;
    void* ws = nullptr;
    KB_CUDA_OK(cudaMalloc(&ws, room + 256));
    c.workspace = ws;
    double ms = 0;
    if (timed)
      ms = kbtest::median_ms([&] { launch(k, c); }, 15, 2, true, 4);
    else
      launch(k, c);
    KB_CUDA_OK(cudaStreamSynchronize(kbtest::cuda_stream()));
    cudaFree(ws);
    return ms;
  }
};

Pool pool;
double bytes_of(const kb_tensor& t) {
  return t.data ? double(kb::elements(t.type)) * double(Array::width(t.type.dtype)) : 0;
}

template <class K>
void bench(const char* what, const std::vector<kb_attr>& attrs, const std::vector<kb_tensor>& in,
           const std::vector<kb_tensor>& out, double bytes = -1) {
  try {
    if (bytes < 0) {
      bytes = 0;
      for (const kb_tensor& t : in) bytes += bytes_of(t);
      for (const kb_tensor& t : out) bytes += bytes_of(t);
    }
    const double ms = pool.run(kb::kernel_table<K>(), attrs, in, out, true);
    std::printf("%-52s %9.3f ms %8.0f GB/s %5.1f %%\n", what, ms, bytes / ms / 1e6, 100 * bytes / ms / 1e6 / kCopy);
  } catch (const std::exception& e) {
    std::printf("%-52s failed: %s\n", what, e.what());
  }
  std::fflush(stdout);
  pool.clear();
}

}  // namespace

int main() {
  if (!kbtest::have_device()) {
    std::printf("there is no CUDA device\n");
    return 0;
  }
  const auto B = uint32_t(KB_BF16), F = uint32_t(KB_F32);
  const int64_t T = 32768, d = 1024;
  Pool& p = pool;
  using kb::Attr;
#define KB_BENCH_UNARY(K, name) \
  bench<K>(name " bf16 [32768, 4096]", {}, {p.normal(B, {T, 4096})}, {p.make(B, {T, 4096})})
  bench<CopyKernel>("copy bf16 [32768, 4096]", {}, {p.normal(B, {T, 4096})}, {p.make(B, {T, 4096})});
  KB_BENCH_UNARY(ExpKernel, "exp");
  KB_BENCH_UNARY(SigmoidKernel, "sigmoid");
  KB_BENCH_UNARY(TanhKernel, "tanh");
  KB_BENCH_UNARY(SoftplusKernel, "softplus");
  KB_BENCH_UNARY(LogKernel, "log");
  bench<AffineKernel>("affine bf16 [32768, 4096]", {Attr("mul", 2.0), Attr("add", 1.0)}, {p.normal(B, {T, 4096})},
                      {p.make(B, {T, 4096})});
  bench<SigmoidKernel>("sigmoid f32 [32768, 2048]", {}, {p.normal(F, {T, 2048})}, {p.make(F, {T, 2048})});
  bench<SoftplusKernel>("softplus f32 [32768, 2048]", {}, {p.normal(F, {T, 2048})}, {p.make(F, {T, 2048})});
  bench<CastKernel>("cast bf16 to f32 [32768, 2048]", {Attr("dtype", int64_t(F))}, {p.normal(B, {T, 2048})},
                    {p.make(F, {T, 2048})});
  bench<CastKernel>("cast f32 to bf16 [32768, 2048]", {Attr("dtype", int64_t(B))}, {p.normal(F, {T, 2048})},
                    {p.make(B, {T, 2048})});
  bench<AddKernel>("add bf16 [32768, 4096]", {}, {p.normal(B, {T, 4096}), p.normal(B, {T, 4096})},
                   {p.make(B, {T, 4096})});
  bench<MulKernel>("mul bf16, row [4096]", {}, {p.normal(B, {T, 4096}), p.normal(B, {4096})}, {p.make(B, {T, 4096})});
  bench<MulKernel>("mul bf16 [T, 32, 128], [T, 32, 1]", {}, {p.normal(B, {T, 32, 128}), p.normal(B, {T, 32, 1})},
                   {p.make(B, {T, 32, 128})});
  bench<AddKernel>("add f32 + bf16 [32768, 2048]", {}, {p.normal(F, {T, 2048}), p.normal(B, {T, 2048})},
                   {p.make(F, {T, 2048})});
  bench<DivKernel>("div f32 [32768, 2048]", {}, {p.normal(F, {T, 2048}), p.normal(F, {T, 2048})},
                   {p.make(F, {T, 2048})});
  bench<AddKernel>("add bf16 [32768, 4095], row (odd)", {}, {p.normal(B, {T, 4095}), p.normal(B, {4095})},
                   {p.make(B, {T, 4095})});
  for (int64_t n : {1024, 2048, 4096, 7168, 128}) {
    const int64_t rows = n == 128 ? T * 16 : T;
    char name[80];
    const std::vector<kb_attr> eps = {Attr("eps", 1e-5)};
    std::snprintf(name, sizeof name, "rms_norm bf16 [%ld, %ld]", long(rows), long(n));
    bench<RmsNormKernel>(name, eps, {p.normal(B, {rows, n}), p.normal(F, {n})}, {p.make(B, {rows, n})});
    std::snprintf(name, sizeof name, "rms_norm_backward bf16 [%ld, %ld]", long(rows), long(n));
    bench<RmsNormBackwardKernel>(name, eps, {p.normal(B, {rows, n}), p.normal(F, {n}), p.normal(B, {rows, n})},
                                 {p.make(B, {rows, n}), p.make(F, {n})});
  }
  bench<SumToKernel>("sum_to bf16 [32768, 4096] to [4096]", {Attr("shape", kb::Shape{4096})}, {p.normal(B, {T, 4096})},
                     {p.make(B, {4096})});
  bench<SumToKernel>("sum_to bf16 [32768, 32, 128] to [32, 1]", {Attr("shape", kb::Shape{32, 1})},
                     {p.normal(B, {T, 32, 128})}, {p.make(B, {32, 1})});
  bench<SumToKernel>("sum_to f32 [32768, 1024] to [1024]", {Attr("shape", kb::Shape{d})}, {p.normal(F, {T, d})},
                     {p.make(F, {d})});
  bench<SumKernel>("sum bf16 [32768, 32, 128] last axis", {Attr("axis", -1), Attr("keep", false)},
                   {p.normal(B, {T, 32, 128})}, {p.make(B, {T, 32})});
  bench<SumKernel>("sum bf16 [32768, 32, 128] axis 1", {Attr("axis", 1), Attr("keep", false)},
                   {p.normal(B, {T, 32, 128})}, {p.make(B, {T, 128})});
  bench<SquareSumKernel>("square_sum f32 [32768, 4096]", {}, {p.normal(F, {T, 4096})}, {p.make(F, {})});
  bench<AmaxKernel>("amax bf16 [32768, 4096] last axis", {Attr("axis", -1), Attr("keep", false)},
                    {p.normal(B, {T, 4096})}, {p.make(B, {T})});
  bench<SoftmaxKernel>("softmax f32 [262144, 64]", {}, {p.normal(F, {262144, 64})}, {p.make(F, {262144, 64})});
  bench<SoftmaxKernel>("softmax bf16 [131072, 896]", {}, {p.normal(B, {131072, 896})}, {p.make(B, {131072, 896})});
  bench<SoftmaxKernel>("softmax bf16 [4096, 32768]", {}, {p.normal(B, {4096, 32768})}, {p.make(B, {4096, 32768})});
  bench<PermuteKernel>("permute bf16 [32768, 32, 128] 1 0 2", {Attr("axes", kb::Shape{1, 0, 2})},
                       {p.normal(B, {T, 32, 128})}, {p.make(B, {32, T, 128})});
  bench<PermuteKernel>("permute bf16 [32768, 4096] 1 0", {Attr("axes", kb::Shape{1, 0})}, {p.normal(B, {T, 4096})},
                       {p.make(B, {4096, T})});
  bench<PermuteKernel>("permute f32 [8192, 4096] 1 0", {Attr("axes", kb::Shape{1, 0})}, {p.normal(F, {8192, 4096})},
                       {p.make(F, {4096, 8192})});
  bench<SliceKernel>("slice bf16 [32768, 8192] to 4096 columns",
                     {Attr("axis", 1), Attr("begin", 2048), Attr("end", 6144)}, {p.normal(B, {T, 8192})},
                     {p.make(B, {T, 4096})}, 2.0 * double(T) * 4096 * 2);
  bench<UnsliceKernel>("unslice bf16 [32768, 4096] to 8192 columns",
                       {Attr("axis", 1), Attr("begin", 2048), Attr("size", 8192)}, {p.normal(B, {T, 4096})},
                       {p.make(B, {T, 8192})});
  bench<ConcatKernel>("concat bf16 2 x [32768, 32, 64] last axis", {Attr("axis", 2)},
                      {p.normal(B, {T, 32, 64}), p.normal(B, {T, 32, 64})}, {p.make(B, {T, 32, 128})});
  bench<BroadcastKernel>("broadcast bf16 [32768, 1, 64] to [32768, 32, 64]", {Attr("shape", kb::Shape{T, 32, 64})},
                         {p.normal(B, {T, 1, 64})}, {p.make(B, {T, 32, 64})});
  bench<FillKernel>("fill bf16 [32768, 4096]",
                    {Attr("shape", kb::Shape{T, 4096}), Attr("value", 1.0), Attr("dtype", int64_t(B))}, {},
                    {p.make(B, {T, 4096})});
  bench<NormalKernel>("normal bf16 [32768, 4096]",
                      {Attr("shape", kb::Shape{T, 4096}), Attr("std", 1.0), Attr("seed", 5), Attr("dtype", int64_t(B))},
                      {}, {p.make(B, {T, 4096})});
  bench<GatherKernel>("gather bf16 [65536, 2048] by 65536", {}, {p.normal(B, {65536, 2048}), p.ids({65536}, 65536)},
                      {p.make(B, {65536, 2048})}, 2.0 * 65536 * 2048 * 2);
  bench<ScatterAddKernel>("scatter_add bf16 65536 rows into [65536, 2048]", {Attr("rows", 65536)},
                          {p.normal(B, {65536, 2048}), p.ids({65536}, 65536)}, {p.make(B, {65536, 2048})});
  bench<TopkKernel>("topk f32 [131072, 896] k 16", {Attr("k", 16)}, {p.normal(F, {131072, 896})},
                    {p.make(F, {131072, 16}), p.make(KB_I32, {131072, 16})});
  bench<TopkKernel>("topk f32 [131072, 256] k 8", {Attr("k", 8)}, {p.normal(F, {131072, 256})},
                    {p.make(F, {131072, 8}), p.make(KB_I32, {131072, 8})});
  bench<TakeKernel>("take f32 [131072, 896] by 16", {}, {p.normal(F, {131072, 896}), p.ids({131072, 16}, 896)},
                    {p.make(F, {131072, 16})}, 131072.0 * 16 * 40);
  bench<UntakeKernel>("untake f32 [131072, 16] to 896", {Attr("width", 896)},
                      {p.normal(F, {131072, 16}), p.ids({131072, 16}, 896)}, {p.make(F, {131072, 896})});
  const std::vector<int32_t> cu = {0, 5, 4000, 4001, 20000, int32_t(T)};
  bench<ShortConvKernel>("short_conv bf16 [32768, 4096]", {},
                         {p.normal(B, {T, 4096}), p.normal(B, {4096, 4}), p.list(cu)}, {p.make(B, {T, 4096})});
  bench<ShortConvBackwardKernel>("short_conv_backward bf16 [32768, 4096]", {},
                                 {p.normal(B, {T, 4096}), p.normal(B, {4096, 4}), p.list(cu), p.normal(B, {T, 4096})},
                                 {p.make(B, {T, 4096}), p.make(B, {4096, 4})});
  for (int64_t n : {32768, 163840}) {
    const int64_t rows = n > 100000 ? 4096 : 16384;
    char name[80];
    const auto weight = [&] {
      const kb_tensor w = p.make(F, {rows});
      p.run(kb::kernel_table<FillKernel>(),
            {Attr("shape", kb::Shape{rows}), Attr("value", 1.0), Attr("dtype", int64_t(F))}, {}, {w});
      return w;
    };
    std::snprintf(name, sizeof name, "cross_entropy bf16 [%ld, %ld]", long(rows), long(n));
    bench<CrossEntropyKernel>(name, {}, {p.normal(B, {rows, n}), p.ids({rows}, n), weight()},
                              {p.make(F, {}), p.make(F, {rows})});
    std::snprintf(name, sizeof name, "cross_entropy_backward bf16 [%ld, %ld]", long(rows), long(n));
    bench<CrossEntropyBackwardKernel>(
        name, {}, {p.normal(B, {rows, n}), p.ids({rows}, n), weight(), p.make(F, {rows}), p.make(F, {})},
        {p.make(B, {rows, n})});
  }
  return 0;
}
