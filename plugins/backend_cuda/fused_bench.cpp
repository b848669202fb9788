// Fused kernels against hand-written ones and against the bytes that have to move at 4.2 TB/s; the time to compile them.
#include <chrono>
#include <cstdio>

#include "fused_by_hand.h"
#include "fused_kernels.h"
#include "fused_source.h"
#include "nvrtc_library.h"
#include "tests/support/device_call.h"

namespace {

using kb::FusedProgram;
using kb::FusedStep;
using kbtest::Array;

// Programs by their steps. Values: inputs, then steps.
struct Maker {
  FusedProgram p;
  int inputs;
  using Strides = std::vector<std::vector<int64_t>>;
  explicit Maker(Strides stride, std::vector<int64_t> inner = {}) : inputs(int(stride.size())) {
    p.stride = std::move(stride), p.inner = std::move(inner);
  }
  int operator()(const char* op, uint32_t dtype, int a, int b = -1, double mul = 1, double add = 0) {
    p.steps.push_back({kb::fused_step(op), dtype, a, b, mul, add});
    return inputs + int(p.steps.size()) - 1;
  }
};
FusedProgram swiglu() {
  Maker m(Maker::Strides{{1}, {1}});
  m.p.out = {m("mul", KB_BF16, m("mul", KB_BF16, 0, m("sigmoid", KB_BF16, 0)), 1)};
  return m.p;
}
FusedProgram swiglu_backward() {  // gate, up, dy -> dgate, dup, as the gradient rules make it
  Maker m(Maker::Strides{{1}, {1}, {1}});
  const int s = m("sigmoid", KB_BF16, 0), silu = m("mul", KB_BF16, 0, s), dsilu = m("mul", KB_BF16, 2, 1);
  const int dup = m("mul", KB_BF16, 2, silu), direct = m("mul", KB_BF16, dsilu, s), ds = m("mul", KB_BF16, dsilu, 0);
  const int slope = m("mul", KB_BF16, s, m("affine", KB_BF16, s, -1, -1, 1));
  m.p.out = {m("add", KB_BF16, direct, m("mul", KB_BF16, ds, slope)), dup};
  return m.p;
}
FusedProgram situ_glu() {
  Maker m(Maker::Strides{{1}, {1}});
  const int a = m("cast", KB_F32, 0), u = m("cast", KB_F32, 1);
  const int t = m("affine", KB_F32, m("tanh", KB_F32, m("affine", KB_F32, a, -1, 0.25)), -1, 4);
  const int bounded = m("mul", KB_F32, t, m("sigmoid", KB_F32, a));
  const int linear = m("affine", KB_F32, m("tanh", KB_F32, m("affine", KB_F32, u, -1, 0.04)), -1, 25);
  m.p.out = {m("cast", KB_BF16, m("mul", KB_F32, bounded, linear))};
  return m.p;
}
FusedProgram output_gate() {  // sigmoid(gate) * y
  Maker m(Maker::Strides{{1}, {1}});
  m.p.out = {m("mul", KB_BF16, m("sigmoid", KB_BF16, 0), 1)};
  return m.p;
}
FusedProgram decay() {  // z [T, 8, 128] bf16, bias [8, 128], A [8, 1] -> floor * sigmoid(exp(A) (z + bias)), f32
  Maker m(Maker::Strides{{1024, 128, 1}, {0, 128, 1}, {0, 1, 0}}, {8, 128});
  const int z = m("add", KB_F32, m("cast", KB_F32, 0), 1);
  m.p.out = {m("affine", KB_F32, m("sigmoid", KB_F32, m("mul", KB_F32, m("exp", KB_F32, 2), z)), -1, -5)};
  return m.p;
}

FusedProgram l2_norm() {  // x [T, 8, 128] -> x / |x|, 1 / |x|
  Maker m(Maker::Strides{{1024, 128, 1}}, {8, 128});
  const int x = m("cast", KB_F32, 0);
  const int r = m("rsqrt", KB_F32, m("affine", KB_F32, m("sum_row", KB_F32, m("mul", KB_F32, x, x)), -1, 1, 1e-6));
  m.p.out = {m("cast", KB_BF16, m("mul", KB_F32, x, r)), r}, m.p.row_out = {0, 1};
  return m.p;
}
FusedProgram weighted_rows() {  // dy, h [R, 512] bf16 -> the gradient of a weight a row
  Maker m(Maker::Strides{{512, 1}, {512, 1}}, {512});
  m.p.out = {m("sum_row", KB_F32, m("mul", KB_F32, m("cast", KB_F32, 0), m("cast", KB_F32, 1)))}, m.p.row_out = {1};
  return m.p;
}

// gate, up, dy [R, 512] bf16, weight [R, 1] -> dgate, dup, and the gradient of the weight: a mixture's gated unit.
FusedProgram moe_backward() {
  Maker m(Maker::Strides{{512, 1}, {512, 1}, {512, 1}, {1, 0}}, {512});
  const int s = m("sigmoid", KB_BF16, 0), silu = m("mul", KB_BF16, 0, s), h = m("mul", KB_BF16, silu, 1);
  const int dy = m("cast", KB_F32, 2), dh = m("mul", KB_F32, dy, 3);
  const int dw = m("sum_row", KB_F32, m("mul", KB_F32, dy, m("cast", KB_F32, h))), d = m("cast", KB_BF16, dh);
  const int dup = m("mul", KB_BF16, d, silu), dsilu = m("mul", KB_BF16, d, 1), direct = m("mul", KB_BF16, dsilu, s);
  const int ds = m("mul", KB_BF16, dsilu, 0), slope = m("mul", KB_BF16, s, m("affine", KB_BF16, s, -1, -1, 1));
  m.p.out = {m("add", KB_BF16, direct, m("mul", KB_BF16, ds, slope)), dup, dw}, m.p.row_out = {0, 0, 1};
  return m.p;
}

double seconds_of(const std::function<void()>& f) {
  const auto t = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

double bench(const char* what, FusedProgram p, const std::vector<const Array*>& in, const std::vector<Array>& out) {
  p.elements = in[0]->size();
  const std::vector<double> flat = p.flat();
  const kb_attr attr{"program", KB_FLOATS, uint32_t(flat.size()), {.fs = flat.data()}};
  kbtest::DeviceCall call(kb::kernel_table<kb::cuda::FusedKernel>(), {attr}, in, out);
  const double first = seconds_of([&] { call.launch(); });
  double bytes = 0;
  for (const Array* a : in) bytes += double(a->bytes.size());
  for (const Array& a : out) bytes += double(a.bytes.size());
  const double ms = kbtest::median_ms([&] { call.launch(); }, 20, 3, true, 5), floor = bytes / 4.2e9;
  printf("%s: %.4f ms, %.0f GB/s, floor %.4f ms (%.0f %%), first launch %.0f ms\n", what, ms, bytes / ms * 1e-6, floor,
         100 * floor / ms, first * 1e3);
  return ms;
}

Array noise(uint32_t dtype, const kb::Shape& s) {  // in (-2, 2)
  Array a = kbtest::array(dtype, s);
  uint32_t x = 12345;
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

}  // namespace

int main() {
  if (!kbtest::have_device()) return puts("there is no CUDA device"), 0;
  if (!kb::cuda::nvrtc_missing().empty()) return puts(kb::cuda::nvrtc_missing().c_str()), 1;
  const int64_t rows = 32768, width = 2816;
  const Array x = noise(KB_BF16, {rows, width});
  const double fused = bench("swiglu, fused", swiglu(), {&x, &x}, {x});
  const double back = bench("swiglu backward, fused", swiglu_backward(), {&x, &x, &x}, {x, x});
  {
    const kbtest::DeviceBytes a(x.bytes.size()), b(x.bytes.size()), c(x.bytes.size()), d(x.bytes.size()),
        e(x.bytes.size());
    a.from(x.bytes.data()), b.from(x.bytes.data()), c.from(x.bytes.data());
    const auto s = kbtest::cuda_stream();
    const double hand =
        kbtest::median_ms([&] { kb::cuda::swiglu_by_hand(a.data(), b.data(), d.data(), x.size(), s); }, 20, 3, true, 5);
    const double hand_back = kbtest::median_ms(
        [&] { kb::cuda::swiglu_backward_by_hand(a.data(), b.data(), c.data(), d.data(), e.data(), x.size(), s); }, 20,
        3, true, 5);
    printf("by hand: swiglu %.4f ms (fused takes %.3f of it), backward %.4f ms (%.3f)\n", hand, fused / hand, hand_back,
           back / hand_back);
  }
  bench("situ-glu, fused", situ_glu(), {&x, &x}, {x});
  bench("output gate, fused", output_gate(), {&x, &x}, {x});
  const Array z = noise(KB_BF16, {rows, 8, 128}), bias = noise(KB_F32, {8, 128}), a_log = noise(KB_F32, {8, 1});
  bench("bounded decay, fused", decay(), {&z, &bias, &a_log}, {kbtest::array(KB_F32, {rows, 8, 128})});
  const kb::Shape heads{rows, 8, 1};
  bench("l2 norm, fused", l2_norm(), {&z}, {z, kbtest::array(KB_F32, heads)});
  const Array e = noise(KB_BF16, {131072, 512}), weight = noise(KB_F32, {131072, 1});
  bench("row weights, fused", weighted_rows(), {&e, &e}, {kbtest::array(KB_F32, {131072, 1})});
  bench("mixture's gated unit backward, fused", moe_backward(), {&e, &e, &e, &weight}, {e, e, weight});
  // Many different programs at once.
  std::vector<kb::cuda::Compiling> all;
  const double cold = seconds_of([&] {
    for (int i = 0; i < 64; ++i) {
      FusedProgram p = situ_glu();
      p.steps.back().op = kb::fused_step("detach");
      p.steps[2].mul = 0.001 * i + double(std::chrono::steady_clock::now().time_since_epoch().count() % 1000000);
      all.push_back(kb::cuda::compile(kb::cuda::fused_source(p, {KB_BF16, KB_BF16}, {KB_BF16}, false).text, 90));
    }
    for (auto& c : all) c.get();
  });
  const auto n = kb::cuda::compile_counts();
  printf("64 sources compiled in %.2f s; in all %d compiled, %d found on disk\n", cold, n.compiled, n.found);
}
