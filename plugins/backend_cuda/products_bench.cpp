// Timing of the products on the device: median over events after warm-up, on random data, one line a case.
#define KBTEST_CUBLASLT
#include <cstdio>

#include "experts.h"
#include "grouped.h"
#include "matmul.h"
#include "tests/support/device_call.h"

namespace kb::cuda {
using kbtest::Array;
using kbtest::array;

static const char* only = "";  // of the command line: cases whose name holds it are run
static bool chosen(const std::string& name) { return name.find(only) != std::string::npos; }

// Random signs, mantissas and low exponent bits, made 8 bytes at a time: magnitudes are log-uniform in [1/8, 2).
static Array noise(uint32_t dtype, const Shape& shape, uint64_t seed) {
  Array a = array(dtype, shape);
  const uint64_t base = dtype == KB_BF16 ? 0x3e003e003e003e00 : 0x3e0000003e000000;
  const uint64_t mask = dtype == KB_BF16 ? 0x81ff81ff81ff81ff : 0x81ffffff81ffffff;
  uint64_t x = seed * 0x9E3779B97F4A7C15ull + 1;
  auto* p = a.data<uint64_t>();
  for (size_t i = 0; i < a.bytes.size() / 8; ++i) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    p[i] = base | (x & mask);
  }
  return a;
}

static void tflops(const char* name, double ms, double flops) {
  std::printf("%-58s %8.3f ms %7.1f TFLOP/s\n", name, ms, flops / ms * 1e-9);
}
static void gbytes(const char* name, double ms, double bytes) {
  std::printf("%-58s %8.4f ms %7.0f GB/s\n", name, ms, bytes / ms * 1e-6);
}

static void matmul(uint32_t dtype, int64_t batch, int64_t m, int64_t n, int64_t k, bool ta, bool tb) {
  const std::string name =
      text("matmul ", dtype_name(dtype), " ", batch, " x ", m, "x", n, "x", k, ta ? " ta" : "", tb ? " tb" : "");
  if (!chosen(name)) return;
  const auto shape = [&](int64_t r, int64_t c) { return batch > 1 ? Shape{batch, r, c} : Shape{r, c}; };
  const Array a = noise(dtype, ta ? shape(k, m) : shape(m, k), 1), b = noise(dtype, tb ? shape(n, k) : shape(k, n), 2);
  const std::vector<Array> out{array(dtype, shape(m, n))};
  kbtest::DeviceCall call(kernel_table<Matmul>(), {default_attr("ta", ta), default_attr("tb", tb)}, {&a, &b}, out);
  const double ms = kbtest::median_ms([&] { call.launch(); }, 15, 5);
  tflops(name.c_str(), ms, 2.0 * double(batch * m * n) * double(k));
}

// Counts of whole tiles of 128 rows, even or as a router's: between 0.55 and 1.65 of the mean.
static std::vector<double> borders(int64_t rows, int64_t experts, bool even) {
  std::vector<double> at{0}, share;
  double sum = 0;
  uint64_t x = 88172645463325252ull;
  for (int64_t e = 0; e < experts; ++e) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    share.push_back(even ? 1 : std::exp(1.1 * double(x >> 11) / 9007199254740992.0));
    sum += share.back();
  }
  for (double s : share) at.push_back(at.back() + std::floor(s / sum * double(rows) / 128 + 0.5) * 128);
  return at;
}

template <class K>
static void linear(const char* kernel, uint32_t dtype, int64_t rows, int64_t experts, int64_t in, int64_t out, bool tw,
                   bool even) {
  const std::string name = text("linear ", kernel, " ", dtype_name(dtype), " ", rows, " rows / ", experts, ", ", in,
                                " -> ", out, tw ? "" : " tw=false", even ? ", even" : "");
  if (!chosen(name)) return;
  const std::vector<double> border = borders(rows, experts, even);
  const Array x = noise(dtype, {rows + experts * 128, in}, 1),
              w = noise(dtype, tw ? Shape{experts, out, in} : Shape{experts, in, out}, 2),
              off = array(KB_I32, {experts + 1}, border);
  const std::vector<Array> y{array(dtype, {rows + experts * 128, out})};
  kbtest::DeviceCall call(kernel_table<K>(), {default_attr("used", rows), default_attr("tw", tw)}, {&x, &w, &off}, y);
  const double ms = kbtest::median_ms([&] { call.launch(); }, 11, 3, true, 4);
  tflops(name.c_str(), ms, 2.0 * border.back() * double(in) * double(out));
}
template <class K>
static void outer(const char* kernel, uint32_t dtype, int64_t rows, int64_t experts, int64_t o, int64_t i, bool even,
                  bool add, uint32_t to = KB_BF16) {
  const std::string name = text("outer ", kernel, " ", dtype_name(dtype), " ", rows, " rows / ", experts, ", ", o,
                                " x ", i, even ? ", even" : "", add ? ", add" : "", to == KB_F32 ? " to f32" : "");
  if (!chosen(name)) return;
  const std::vector<double> border = borders(rows, experts, even);
  const Array a = noise(dtype, {rows + experts * 128, o}, 1), b = noise(dtype, {rows + experts * 128, i}, 2),
              off = array(KB_I32, {experts + 1}, border);
  const std::vector<Array> y{array(to, {experts, o, i})};
  kbtest::Options opt;
  opt.accumulate = add;
  kbtest::DeviceCall call(kernel_table<K>(), {default_attr("experts", experts), default_attr("used", rows)},
                          {&a, &b, &off}, y, opt);
  const double ms = kbtest::median_ms([&] { call.launch(); }, 11, 3, true, 4);
  tflops(name.c_str(), ms, 2.0 * border.back() * double(o) * double(i));
}

static void experts(int64_t tokens, int64_t active, int64_t experts, int64_t width) {
  if (!chosen("expert")) return;
  Array ids = array(KB_I32, {tokens, active});
  uint64_t x = 88172645463325252ull;
  for (int64_t i = 0; i < ids.size(); ++i) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    ids.set(i, double((x >> 20) % uint64_t(experts)));
  }
  const int64_t rows = tokens * active + std::min(experts, tokens * active) * 127;
  const std::string what = text(tokens, " x ", active, " to ", experts);
  std::vector<Array> y{array(KB_I32, {rows}), array(KB_I32, {experts + 1})};
  kbtest::DeviceCall sort(kernel_table<ExpertSortKernel>(), {Attr("experts", experts), Attr("tile", 128)}, {&ids}, y);
  const double ms = kbtest::median_ms([&] { sort.launch(); }, 15, 3, true);
  gbytes(("expert_sort " + what).c_str(), ms, double(tokens * active + rows) * 4);
  sort.fetch(y);
  const Array in = noise(KB_BF16, {tokens, width}, 1), far = noise(KB_BF16, {rows, width}, 2);
  const std::vector<Array> sent{array(KB_BF16, {rows, width})}, got{array(KB_BF16, {tokens, width})};
  kbtest::DeviceCall send(kernel_table<DispatchKernel>(), {Attr("active", active)}, {&in, &y[0]}, sent);
  gbytes(text("dispatch ", what, " width ", width).c_str(), kbtest::median_ms([&] { send.launch(); }, 15, 3, true),
         double(rows + tokens) * double(width) * 2);
  kbtest::DeviceCall sum(kernel_table<CombineKernel>(), {Attr("tokens", tokens), Attr("active", active)}, {&far, &y[0]},
                         got);
  gbytes(text("combine ", what, " width ", width).c_str(), kbtest::median_ms([&] { sum.launch(); }, 15, 3, true),
         double(tokens * (active + 1)) * double(width) * 2);
}

static void all() {
  matmul(KB_BF16, 1, 8192, 8192, 8192, false, false);
  matmul(KB_BF16, 1, 8192, 8192, 8192, false, true);
  matmul(KB_BF16, 1, 8192, 8192, 8192, true, false);
  matmul(KB_BF16, 1, 32768, 1024, 1024, false, true);
  matmul(KB_BF16, 1, 32768, 1024, 512, false, true);
  matmul(KB_F32, 1, 4096, 4096, 4096, false, true);
  matmul(KB_BF16, 64, 1024, 1408, 2048, false, true);
  experts(8192, 8, 64, 512);
  experts(8192, 8, 64, 2048);
  experts(1, 8, 64, 512);
  linear<GroupedLinearWgmma>("wgmma", KB_BF16, 65536, 64, 2048, 1408, true, false);
  linear<GroupedLinearWgmma>("wgmma", KB_BF16, 65536, 64, 2048, 1408, true, true);
  linear<GroupedLinearWgmma>("wgmma", KB_BF16, 65536, 64, 1408, 2048, true, false);
  linear<GroupedLinearWgmma>("wgmma", KB_BF16, 65536, 64, 1408, 2048, false, false);
  linear<GroupedLinearWgmma>("wgmma", KB_BF16, 65536, 64, 2048, 1408, false, false);
  linear<GroupedLinearWgmma>("wgmma", KB_BF16, 65536, 256, 1024, 2048, true, false);
  linear<GroupedLinearWgmma>("wgmma", KB_BF16, 65536, 64, 512, 512, true, false);
  linear<GroupedLinearWgmma>("wgmma", KB_BF16, 65536, 8, 2048, 2048, true, true);
  linear<GroupedLinearWgmma>("wgmma", KB_BF16, 262144, 64, 512, 512, true, false);
  outer<GroupedOuterWgmma>("wgmma", KB_BF16, 262144, 64, 512, 512, false, false);
  outer<GroupedOuterWgmma>("wgmma", KB_BF16, 262144, 64, 512, 512, false, true);
  outer<GroupedOuterWgmma>("wgmma", KB_BF16, 262144, 64, 512, 512, false, true, KB_F32);
  outer<GroupedOuterWgmma>("wgmma", KB_BF16, 65536, 64, 1408, 2048, false, false);
  outer<GroupedOuterWgmma>("wgmma", KB_BF16, 65536, 64, 2048, 1408, false, false);
  outer<GroupedOuterWgmma>("wgmma", KB_BF16, 65536, 64, 1408, 2048, true, true);
  outer<GroupedOuterWgmma>("wgmma", KB_BF16, 65536, 64, 1408, 2048, false, true, KB_F32);
  outer<GroupedOuterWgmma>("wgmma", KB_BF16, 65536, 256, 2048, 1024, false, false);
  outer<GroupedOuterWgmma>("wgmma", KB_BF16, 65536, 64, 512, 512, false, false);
  linear<GroupedLinearSimt>("simt", KB_F32, 8192, 64, 512, 512, true, false);
  outer<GroupedOuterSimt>("simt", KB_F32, 8192, 64, 512, 512, false, false, KB_F32);
}

}  // namespace kb::cuda

int main(int argc, char** argv) {
  if (argc > 1) kb::cuda::only = argv[1];
  if (!kbtest::have_device()) {
    std::puts("there is no CUDA device");
    return 0;
  }
  try {
    kb::cuda::all();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
