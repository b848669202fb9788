// kernel_call.h: runs one kernel table on plain vectors, without graph or backend, for tests beside kernels.
#pragma once
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kitbash/op.h"

namespace kbtest {

// bf16 as its 16 bits: the upper half of a float, rounded to nearest even.
inline double from_bf16(uint16_t b) {
  const uint32_t u = uint32_t(b) << 16;
  float f;
  std::memcpy(&f, &u, 4);
  return double(f);
}
inline uint16_t to_bf16(double v) {
  const float f = float(v);
  uint32_t u;
  std::memcpy(&u, &f, 4);
  if ((u & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return uint16_t((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

struct Array {  // a dense tensor that owns its memory
  kb_type type{};
  std::vector<char> bytes;

  static size_t width(uint32_t dtype) {
    return dtype == KB_U8 ? 1 : dtype == KB_BF16 ? 2 : dtype == KB_I64 || dtype == KB_F64 ? 8 : 4;
  }
  int64_t size() const { return kb::elements(type); }
  template <class T>
  T* data() {
    return reinterpret_cast<T*>(bytes.data());
  }
  template <class T>
  const T* data() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
  double at(int64_t i) const {
    switch (type.dtype) {
      case KB_F64:
        return data<double>()[i];
      case KB_F32:
        return double(data<float>()[i]);
      case KB_I64:
        return double(data<int64_t>()[i]);
      case KB_BF16:
        return from_bf16(data<uint16_t>()[i]);
      case KB_U8:
        return double(data<uint8_t>()[i]);
      default:
        return double(data<int32_t>()[i]);
    }
  }
  void set(int64_t i, double v) {
    switch (type.dtype) {
      case KB_F64:
        data<double>()[i] = v;
        break;
      case KB_F32:
        data<float>()[i] = float(v);
        break;
      case KB_I64:
        data<int64_t>()[i] = int64_t(v);
        break;
      case KB_BF16:
        data<uint16_t>()[i] = to_bf16(v);
        break;
      case KB_U8:
        data<uint8_t>()[i] = uint8_t(v);
        break;
      default:
        data<int32_t>()[i] = int32_t(v);
    }
  }
};

inline Array array(uint32_t dtype, const kb::Shape& s, const std::vector<double>& v = {}) {
  Array a;
  a.type.dtype = dtype;
  a.type.rank = s.n;
  std::copy(s.at, s.at + s.n, a.type.shape);
  a.type.lo = -INFINITY, a.type.hi = INFINITY;
  a.bytes.assign(size_t(s.size()) * Array::width(dtype), 0);
  for (size_t i = 0; i < v.size(); ++i) a.set(int64_t(i), v[i]);
  return a;
}
inline Array absent() { return Array{}; }
inline Array normal(uint32_t dtype, const kb::Shape& s, uint64_t seed, double scale = 1) {
  Array a = array(dtype, s);
  std::mt19937_64 r(seed);
  std::normal_distribution<double> d;
  for (int64_t i = 0; i < a.size(); ++i) a.set(i, scale * d(r));
  return a;
}

struct Options {
  std::vector<int32_t> extents;  // by number; [0] is unused
  uint32_t accumulate = 0;
  uint64_t unwanted = 0;  // bit o: output o is not wanted
  int32_t threads = 3;    // pieces are run one after the other, each with a thread number of its own
  bool deterministic = true;
  bool ask = true;                                 // supports(); false: the kernel runs though it would decline
  std::vector<std::pair<int, int>> in_place = {};  // on a device: output `first` has the memory of input `second`
};

// `outputs` hold types and, to accumulate, contents; unaccumulated ones are filled with NaN bytes first.
inline void run(const kb_kernel* k, const std::vector<kb_attr>& attrs, const std::vector<const Array*>& in,
                std::vector<Array>& outputs, const Options& o = {}) {
  std::vector<kb_tensor> ti, to;
  for (const Array* a : in)
    ti.push_back({a->bytes.empty() ? nullptr : const_cast<char*>(a->bytes.data()), a->type, {}});
  for (size_t i = 0; i < outputs.size(); ++i) {
    Array& a = outputs[i];
    if (!(o.accumulate >> i & 1) && !a.bytes.empty()) std::memset(a.bytes.data(), 0xff, a.bytes.size());
    to.push_back({o.unwanted >> i & 1 ? nullptr : a.bytes.data(), a.type, {}});
  }
  kb_device dev{};
  dev.struct_size = KB_STRUCT_SIZE(kb_device, nccl);
  dev.kind = KB_CPU;
  dev.threads = o.threads;
  dev.deterministic = o.deterministic;
  static thread_local int32_t team;
  team = o.threads;
  dev.parallel = [](const void*, int64_t n, int64_t grain, void (*body)(void*, int64_t, int64_t, int32_t), void* arg) {
    const int64_t piece = std::max(grain, (n + team - 1) / team);
    int32_t t = 0;
    for (int64_t b = 0; b < n; b += piece) body(arg, b, std::min(n, b + piece), t++);
  };
  kb_call c{};
  c.struct_size = KB_STRUCT_SIZE(kb_call, device);
  c.attr = attrs.data(), c.n_attr = uint32_t(attrs.size());
  c.in = ti.data(), c.n_in = uint32_t(ti.size());
  c.out = to.data(), c.n_out = uint32_t(to.size());
  c.accumulate = o.accumulate;
  c.device = &dev;
  kb_error e{};
  if (k->supports && k->supports(&c, &e)) throw kb::Error(e.message);
  std::vector<char> ws(k->workspace ? k->workspace(&c) + 64 : 64);
  void* p = ws.data();
  size_t room = ws.size();
  c.workspace = std::align(64, ws.size() - 64, p, room);
  c.extents = o.extents.empty() ? nullptr : o.extents.data();
  void* plan = nullptr;
  if (k->prepare && k->prepare(&c, &plan, &e)) throw kb::Error(e.message);
  const int rc = k->launch(plan, &c, &e);
  if (k->release) k->release(plan);
  if (rc) throw kb::Error(e.message);
}

// ||a - b|| / max(||b||, floor)
inline double relative_error(const Array& a, const Array& b, double floor = 1e-30) {
  double d = 0, n = 0;
  for (int64_t i = 0; i < b.size(); ++i) d += (a.at(i) - b.at(i)) * (a.at(i) - b.at(i)), n += b.at(i) * b.at(i);
  return std::sqrt(d) / std::max(std::sqrt(n), floor);
}

}  // namespace kbtest
