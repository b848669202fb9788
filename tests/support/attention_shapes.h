// attention_shapes.h: attention on training shapes, for the benchmarks of every kernel that takes them. FLOPs count what a
// causal mask leaves: 2 products forward, 5 backward.
#pragma once
#include <cstring>

#include "tests/support/device_call.h"

namespace kb::attention_bench {
using kbtest::Array;
using kbtest::array;

struct Shape {
  const char* name;
  int64_t heads, d, e;
  std::vector<int64_t> lengths;
  int64_t documents;  // bound; 0: as many as there are
};

inline Array random(const kb::Shape& s, uint32_t seed) {  // bf16 uniform in (-1.7, 1.7): unit variance
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

inline void line(const char* kernel, const Shape& s, double ms, double flops) {
  std::printf("%-26s %-28s %8.3f ms %6.0f TFLOP/s\n", kernel, s.name, ms, flops / ms * 1e-9);
  std::fflush(stdout);
}

inline void time_one(const kb_kernel* k, const std::vector<kb_attr>& attrs, const std::vector<const Array*>& in,
                     const std::vector<Array>& out, const Shape& s, double flops, const kbtest::Options& o = {}) {
  try {
    kbtest::DeviceCall call(k, attrs, in, out, o);
    const double ms = kbtest::median_ms([&] { call.launch(); }, 10, 2);
    line(k->name, s, ms, flops);
  } catch (const std::exception& e) {
    std::printf("%-26s %-28s %s\n", k->name, s.name, e.what());
  }
}

// Forward and backward of causal attention on random operands; `forward` gives the backward pass its o and lse.
struct Problem {
  Shape shape;
  double unit, d, e;  // FLOPs of a product with one channel; channels
  Array q, k, v, up, borders;
  std::vector<kb_attr> attrs;
  std::vector<Array> out;

  explicit Problem(const Shape& s) : shape(s), d(double(s.d)), e(double(s.e)) {
    int64_t tokens = 0;
    double pairs = 0;
    std::vector<double> cu{0};
    for (int64_t n : s.lengths) tokens += n, pairs += double(n) * double(n) / 2, cu.push_back(double(tokens));
    while (int64_t(cu.size()) <= s.documents) cu.push_back(double(tokens));
    unit = 2 * pairs * double(s.heads);
    q = random({tokens, s.heads, s.d}, 1), k = random({tokens, s.heads, s.d}, 2), v = random({tokens, s.heads, s.e}, 3);
    up = random({tokens, s.heads, s.e}, 4), borders = array(KB_I32, {int64_t(cu.size())}, cu);
    attrs = {default_attr("scale", 1 / std::sqrt(d)), default_attr("causal", true)};
    out = {array(KB_BF16, {tokens, s.heads, s.e}), array(KB_F32, {tokens, s.heads}), array(KB_F32, {s.heads})};
  }
  void run(const kb_kernel* forward) { kbtest::run_device(forward, attrs, {&q, &k, &v, &borders}, out); }
  void time_forward(const kb_kernel* forward) const {
    time_one(forward, attrs, {&q, &k, &v, &borders}, out, shape, unit * (d + e));
  }
  void time_backward(const kb_kernel* backward, double products_d = 3, double products_e = 2,
                     const kbtest::Options& o = {}) const {
    time_one(backward, attrs, {&q, &k, &v, &borders, &out[0], &out[1], &up}, {q, k, v}, shape,
             unit * (products_d * d + products_e * e), o);
  }
};
inline std::vector<Shape> shapes() {
  return {{"4 x 8192, h 8, 192/128", 8, 192, 128, {8192, 8192, 8192, 8192}, 0},
          {"same, room for 64 documents", 8, 192, 128, {8192, 8192, 8192, 8192}, 64},
          {"1 x 8192, h 32, 192/128", 32, 192, 128, {8192}, 0},
          {"6 ragged, 8192, h 32", 32, 192, 128, {3000, 1000, 500, 2192, 700, 800}, 0},
          {"1 x 8192, h 16, 128/128", 16, 128, 128, {8192}, 0},
          {"1 x 8192, h 16, 96/96", 16, 96, 96, {8192}, 0},
          {"1 x 8192, h 16, 64/64", 16, 64, 64, {8192}, 0},
          {"1 x 8192, h 16, 32/32", 16, 32, 32, {8192}, 0},
          {"1 x 2048, h 8, 96/96", 8, 96, 96, {2048}, 0},
          {"8 x 256, h 4, 32/32", 4, 32, 32, {256, 256, 256, 256, 256, 256, 256, 256}, 0},
          {"1 x 8192, h 16, 256/256", 16, 256, 256, {8192}, 0}};
}

}  // namespace kb::attention_bench
