// A thread owns a unit of neighbouring elements: it loads all operands, computes, and stores, so that an output may take the
// memory of an operand. Everything that follows from shapes but the first axis is a constant of the source. The functions are
// those of pointwise.cu, step by step, so that f32 results have the bits of the unfused kernels.
//
// Where rows are summed over, a few lanes own a row and walk over it once for each level of sums; what they read again is in
// the first-level cache. The order of a sum is fixed by lane and place.
#include "fused_source.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "kitbash/op.h"

namespace kb::cuda {

namespace {

// No includes: they would take longer than the rest of the compilation.
constexpr const char* kPrelude = R"(
#pragma nv_diag_suppress 177
struct bf16 { unsigned short bits; };
#define DEV static __device__ __forceinline__
DEV float inf() { return __int_as_float(0x7f800000); }
DEV float widen(bf16 v) { return __uint_as_float((unsigned)v.bits << 16); }
DEV float widen(float v) { return v; }
DEV float widen(int v) { return (float)v; }
DEV unsigned pair(float low, float high) {
  unsigned r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
template <int W> struct Words { unsigned w[W]; };
template <int W> DEV Words<W> words(const void* p) {
  if constexpr (W == 4) {
    const uint4 q = *(const uint4*)p;
    return {q.x, q.y, q.z, q.w};
  } else if constexpr (W == 2) {
    const uint2 q = *(const uint2*)p;
    return {q.x, q.y};
  } else {
    return {*(const unsigned*)p};
  }
}
template <int W> DEV void put(void* p, const unsigned (&w)[W]) {
  if constexpr (W == 4)
    *(uint4*)p = make_uint4(w[0], w[1], w[2], w[3]);
  else if constexpr (W == 2)
    *(uint2*)p = make_uint2(w[0], w[1]);
  else
    *(unsigned*)p = w[0];
}
template <int V> DEV void load(const bf16* p, float (&f)[V]) {
  if constexpr (V == 1) {
    f[0] = widen(*p);
  } else {
    const Words<V / 2> q = words<V / 2>(p);
#pragma unroll
    for (int k = 0; k < V / 2; ++k) f[2 * k] = __uint_as_float(q.w[k] << 16), f[2 * k + 1] = __uint_as_float(q.w[k] & 0xffff0000u);
  }
}
DEV float number(const float*, unsigned w) { return __uint_as_float(w); }
DEV float number(const int*, unsigned w) { return (float)(int)w; }
template <class T, int V> DEV void load(const T* p, float (&f)[V]) {
  constexpr int W = V < 4 ? V : 4;
#pragma unroll
  for (int i = 0; i < V; i += W) {
    const Words<W> q = words<W>(p + i);
#pragma unroll
    for (int k = 0; k < W; ++k) f[i + k] = number(p, q.w[k]);
  }
}
template <int V> DEV void store(bf16* p, const float (&f)[V]) {
  if constexpr (V == 1) {
    p->bits = (unsigned short)pair(f[0], f[0]);
  } else {
    unsigned w[V / 2];
#pragma unroll
    for (int k = 0; k < V / 2; ++k) w[k] = pair(f[2 * k], f[2 * k + 1]);
    put<V / 2>(p, w);
  }
}
template <int V> DEV void store(float* p, const float (&f)[V]) {
  constexpr int W = V < 4 ? V : 4;
#pragma unroll
  for (int i = 0; i < V; i += W) {
    unsigned w[W];
#pragma unroll
    for (int k = 0; k < W; ++k) w[k] = __float_as_uint(f[i + k]);
    put<W>(p + i, w);
  }
}
// R: no f32 result depends on it, so the hardware's functions are good enough: relative errors of a few 1e-7.
DEV float rough_exp(float v) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v * 1.4426950408889634f));
  return r;
}
DEV float rough_inverse(float v) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}
template <bool R> DEV float s_exp(float v) { return R ? rough_exp(v) : expf(v); }
template <bool R> DEV float s_log(float v) { return logf(v); }
template <bool R> DEV float s_sigmoid(float v) {
  if (R) return rough_inverse(1.0f + rough_exp(-v));
  const float e = expf(-fabsf(v));
  return (v >= 0 ? 1.0f : e) / (1.0f + e);
}
template <bool R> DEV float s_tanh(float v) {
  if (!R) return tanhf(v);
  const float near = v * fmaf(v * v, -1.0f / 3, 1.0f);  // near 0 the other loses digits
  const float far = fmaf(-2.0f, rough_inverse(1.0f + rough_exp(2.0f * v)), 1.0f);
  return fabsf(v) < 0.02f ? near : far;
}
template <bool R> DEV float s_softplus(float v) {
  if (!R) return v != v ? v : fmaxf(v, 0.0f) + log1pf(expf(-fabsf(v)));
  const float e = rough_exp(-fabsf(v));
  const float near = e * fmaf(e, fmaf(e, 1.0f / 3, -0.5f), 1.0f);
  return v != v ? v : fmaxf(v, 0.0f) + (e < 0.01f ? near : __logf(1.0f + e));
}
template <bool R> DEV float s_rsqrt(float v) { return R ? rsqrtf(v) : 1.0f / sqrtf(v); }
template <bool R> DEV float s_sqrt(float v) { return sqrtf(v); }
template <bool R> DEV float s_sin(float v) { return sinf(v); }
template <bool R> DEV float s_cos(float v) { return cosf(v); }
template <bool R> DEV float s_erf(float v) { return erff(v); }
template <bool R> DEV float s_floor(float v) { return floorf(v); }
template <int L> DEV float lane_sum(float v) {
#pragma unroll
  for (int o = L / 2; o; o >>= 1) v += __shfl_xor_sync(0xffffffffu, v, o);
  return v;
}
template <bool R> DEV float s_is_finite(float v) { return fabsf(v) < inf() ? 1.0f : 0.0f; }
)";

std::string number(double v) {  // an f32 by its bits
  const float f = float(v);
  uint32_t u;
  std::memcpy(&u, &f, 4);
  char s[40];
  std::snprintf(s, sizeof s, "__uint_as_float(0x%08xu)", u);
  return s;
}
const char* type_name(uint32_t dtype) {
  switch (dtype) {
    case KB_BF16:
      return "bf16";
    case KB_F32:
      return "float";
    case KB_I32:
      return "int";
    default:
      fail("the operands of a fused node must be f32, bf16 or i32 but one is ", dtype_name(dtype));
  }
}

class Writer {
 public:
  Writer(const FusedProgram& p, const std::vector<uint32_t>& in, const std::vector<uint32_t>& out, bool large)
      : p_(p), in_(in), out_(out), large_(large) {
    if (p.stride.size() != in.size() || p.out.size() != out.size())
      fail("the program of a fused node must have ", in.size(), " inputs and ", out.size(), " outputs but has ",
           p.stride.size(), " and ", p.out.size());
    choose_unit();
    find_precise();
    if (p_.sums_rows()) find_levels();
  }
  FusedSource write() {
    s_ = kPrelude;
    s_ += large_ ? "typedef unsigned long long Index;\n" : "typedef unsigned Index;\n";
    FusedSource f;
    if (p_.sums_rows()) {
      row_body();
      row_entry();
      f.row = p_.inner.back(), f.lanes = lanes_;
    } else {
      body();
      entry();
    }
    f.text = s_, f.unit = unit_;
    for (size_t i = 0; i < in_.size(); ++i) f.in_units.push_back(p_.stride[i].back() == 1);
    return f;
  }

 private:
  // Steps in f32 whose result reaches memory as f32 through such steps alone. For others the hardware's functions are good
  // enough: somewhere on the way the value is one that single kernels would round to bf16.
  void find_precise() {
    precise_.assign(p_.steps.size(), 0);
    const int first = int(in_.size());
    for (size_t o = 0; o < out_.size(); ++o)
      if (out_[o] != KB_BF16 && p_.out[o] >= first) precise_[size_t(p_.out[o] - first)] = 1;
    for (size_t n = p_.steps.size(); n-- > 0;)
      if (precise_[n] = precise_[n] && p_.steps[n].dtype != KB_BF16; precise_[n])
        for (int v : {p_.steps[n].a, p_.steps[n].b})
          if (v >= first) precise_[size_t(v - first)] = 1;
  }
  // Which values are one a row, and after how many sums each is known.
  void find_levels() {
    if (p_.inner.empty()) fail("a fused node that sums over rows must have an axis of rows");
    const size_t n = in_.size();
    level_.assign(n + p_.steps.size(), 0), of_row_.assign(n + p_.steps.size(), 0);
    for (size_t i = 0; i < n; ++i) of_row_[i] = p_.stride[i].back() == 0;
    for (size_t k = 0; k < p_.steps.size(); ++k) {
      const FusedStep& s = p_.steps[k];
      const bool sum = is_sum(s);
      bool row = true;
      int level = 0;
      for (int v : {s.a, s.b})
        if (v >= 0) row = row && of_row_[size_t(v)], level = std::max(level, level_[size_t(v)]);
      of_row_[n + k] = sum || row, level_[n + k] = level + sum;
      passes_ = std::max(passes_, level + (sum ? 1 : 0));
    }
    for (size_t o = 0; o < out_.size(); ++o)
      if (!of_row_[size_t(p_.out[o])]) passes_ = std::max(passes_, level_[size_t(p_.out[o])] + 1);
    while (lanes_ < 32 && lanes_ * unit_ < p_.inner.back()) lanes_ *= 2;
  }
  static bool is_sum(const FusedStep& s) { return std::string_view(fused_steps[s.op]) == "sum_row"; }
  size_t axes() const { return p_.inner.size() + 1; }
  int64_t flat_step(size_t axis) const {  // of an operand that has one element an element
    int64_t n = 1;
    for (size_t a = axis; a < p_.inner.size(); ++a) n *= p_.inner[a];
    return n;
  }
  bool full(size_t i) const {
    for (size_t a = 0; a < axes(); ++a)
      if (p_.stride[i][a] != flat_step(a)) return false;
    return true;
  }
  void choose_unit() {
    bool narrow = false;
    for (const auto* list : {&in_, &out_})
      for (uint32_t t : *list) narrow |= t == KB_BF16;
    unit_ = narrow && in_.size() + out_.size() <= 10 ? 8 : 4;  // more operands would take too many registers
    const auto fits = [&](int64_t n) {
      while (n % unit_) unit_ /= 2;
    };
    if (!p_.inner.empty()) fits(p_.inner.back());
    for (size_t i = 0; i < in_.size(); ++i)
      if (p_.stride[i].back() == 1)
        for (size_t a = 0; a + 1 < axes(); ++a) fits(p_.stride[i][a]);
  }
  void parameters() {
    for (size_t i = 0; i < in_.size(); ++i) s_ += text("const ", type_name(in_[i]), "* a", i, ", ");
    for (size_t o = 0; o < out_.size(); ++o) s_ += text(type_name(out_[o]), "* y", o, o + 1 < out_.size() ? ", " : "");
  }
  std::string offset(size_t i) const {
    if (full(i)) return "i";
    std::string s;
    for (size_t a = 0; a < axes(); ++a) {
      const int64_t step = p_.stride[i][a];
      if (step) s += text(s.empty() ? "" : " + ", "x", a, step == 1 ? std::string() : text(" * (Index)", step, "u"));
    }
    return s.empty() ? "0" : s;
  }
  std::string value(int v) const {
    const auto i = size_t(v);
    if (i >= in_.size()) return text("v", v);
    return text("f", v, p_.stride[i].back() ? "[k]" : "");
  }
  std::string step(size_t n) const {
    const FusedStep& s = p_.steps[n];
    const std::string op = fused_steps[s.op];
    const std::string a = s.a >= 0 ? value(s.a) : "", b = s.b >= 0 ? value(s.b) : "";
    if (op == "fill") return number(s.add);
    if (op == "affine") return text("fmaf(", number(s.mul), ", ", a, ", ", number(s.add), ")");
    if (op == "cast" || op == "detach") return a;
    if (op == "add") return text(a, " + ", b);
    if (op == "sub") return text(a, " - ", b);
    if (op == "mul") return text(a, " * ", b);
    if (op == "div") return text(a, " / ", b);
    if (op == "minimum") return text(a, " < ", b, " ? ", a, " : ", b);
    if (op == "maximum") return text(a, " > ", b, " ? ", a, " : ", b);
    if (op == "less") return text(a, " < ", b, " ? 1.0f : 0.0f");
    return text("s_", op, precise_[n] ? "<false>(" : "<true>(", a, ")");
  }
  void body() {
    s_ += "template <int V> DEV void body(Index i, ";
    parameters();
    s_ += ") {\n";
    if (axes() > 1) {
      s_ += "  Index rest = i;\n";
      for (size_t a = axes() - 1; a > 0; --a)
        s_ += text("  const Index x", a, " = rest % ", p_.inner[a - 1], "u; rest /= ", p_.inner[a - 1], "u;\n");
      s_ += "  const Index x0 = rest;\n";
    } else {
      s_ += "  const Index x0 = i;\n";
    }
    for (size_t i = 0; i < in_.size(); ++i) {
      const int64_t inner = p_.stride[i].back();
      if (inner == 0)
        s_ += text("  const float f", i, " = widen(a", i, "[", offset(i), "]);\n");
      else if (inner == 1)
        s_ += text("  float f", i, "[V]; load(a", i, " + (", offset(i), "), f", i, ");\n");
      else
        s_ += text("  float f", i, "[V];\n#pragma unroll\n  for (int k = 0; k < V; ++k) f", i, "[k] = widen(a", i, "[",
                   offset(i), " + k * ", inner, "]);\n");
    }
    for (size_t o = 0; o < out_.size(); ++o) s_ += text("  float r", o, "[V];\n");
    s_ += "#pragma unroll\n  for (int k = 0; k < V; ++k) {\n";
    for (size_t n = 0; n < p_.steps.size(); ++n) s_ += text("    const float v", in_.size() + n, " = ", step(n), ";\n");
    for (size_t o = 0; o < out_.size(); ++o) s_ += text("    r", o, "[k] = ", value(p_.out[o]), ";\n");
    s_ += "  }\n";
    for (size_t o = 0; o < out_.size(); ++o) s_ += text("  if (y", o, ") store(y", o, " + i, r", o, ");\n");
    s_ += "}\n";
  }
  // ---- with sums over rows
  std::string row_offset(size_t i) const {  // of the first element of the row that an operand has for it
    std::string s;
    for (size_t a = 0; a + 1 < axes(); ++a) {
      const int64_t step = p_.stride[i][a];
      if (step) s += text(s.empty() ? "" : " + ", "x", a, step == 1 ? std::string() : text(" * (Index)", step, "u"));
    }
    return s.empty() ? "0" : s;
  }
  bool row_result(size_t o) const { return of_row_[size_t(p_.out[o])] && p_.row_out[o]; }
  void row_steps(int level) {
    for (size_t k = 0; k < p_.steps.size(); ++k)
      if (const size_t v = in_.size() + k; of_row_[v] && level_[v] == level && !is_sum(p_.steps[k]))
        s_ += text("  const float v", v, " = ", step(k), ";\n");
  }
  void row_body() {
    const int64_t width = p_.inner.back();
    s_ += "template <int V> DEV void body(Index row, bool live, int lane, ";
    parameters();
    s_ += ") {\n  Index rest = row;\n";
    for (size_t a = axes() - 2; a > 0; --a)
      s_ += text("  const Index x", a, " = rest % ", p_.inner[a - 1], "u; rest /= ", p_.inner[a - 1], "u;\n");
    s_ += "  const Index x0 = rest;\n";
    for (size_t i = 0; i < in_.size(); ++i)
      if (of_row_[i]) s_ += text("  const float f", i, " = live ? widen(a", i, "[", row_offset(i), "]) : 0.0f;\n");
    row_steps(0);
    for (int pass = 0; pass < passes_; ++pass) {
      const bool last = pass + 1 == passes_;
      for (size_t k = 0; k < p_.steps.size(); ++k)
        if (is_sum(p_.steps[k]) && level_[in_.size() + k] == pass + 1)
          s_ += text("  float v", in_.size() + k, " = 0.0f;\n");
      s_ += text("  if (live) {\n#pragma unroll ", width <= lanes_ * unit_ * 4 ? 4 : 2,
                 "\n  for (Index j = lane * V; j < ", width, "u; j += ", lanes_, " * V) {\n");
      for (size_t i = 0; i < in_.size(); ++i) {
        if (of_row_[i]) continue;
        const int64_t step = p_.stride[i].back();
        if (step == 1)
          s_ += text("    float f", i, "[V]; load(a", i, " + (", row_offset(i), " + j), f", i, ");\n");
        else
          s_ += text("    float f", i, "[V];\n#pragma unroll\n    for (int k = 0; k < V; ++k) f", i, "[k] = widen(a", i,
                     "[", row_offset(i), " + (j + k) * ", step, "u]);\n");
      }
      if (last)
        for (size_t o = 0; o < out_.size(); ++o)
          if (!row_result(o)) s_ += text("    float r", o, "[V];\n");
      s_ += "#pragma unroll\n    for (int k = 0; k < V; ++k) {\n";
      for (size_t k = 0; k < p_.steps.size(); ++k) {
        const size_t v = in_.size() + k;
        if (!of_row_[v] && level_[v] <= pass) s_ += text("      const float v", v, " = ", step(k), ";\n");
        if (is_sum(p_.steps[k]) && level_[v] == pass + 1) s_ += text("      v", v, " += ", value(p_.steps[k].a), ";\n");
      }
      if (last)
        for (size_t o = 0; o < out_.size(); ++o)
          if (!row_result(o)) s_ += text("      r", o, "[k] = ", value(p_.out[o]), ";\n");
      s_ += "    }\n";
      if (last)
        for (size_t o = 0; o < out_.size(); ++o)
          if (!row_result(o)) s_ += text("    if (y", o, ") store(y", o, " + (row * ", width, "u + j), r", o, ");\n");
      s_ += "  }\n  }\n";
      for (size_t k = 0; k < p_.steps.size(); ++k)
        if (const size_t v = in_.size() + k; is_sum(p_.steps[k]) && level_[v] == pass + 1)
          s_ += text("  v", v, " = lane_sum<", lanes_, ">(v", v, ");\n");
      row_steps(pass + 1);
    }
    for (size_t o = 0; o < out_.size(); ++o)
      if (row_result(o)) {
        s_ += text("  if (live && lane == 0 && y", o, ") { const float r[1] = {", value(p_.out[o]), "}; store(y", o,
                   " + row, r); }\n");
      }
    s_ += "}\n";
  }
  void row_entry() {
    s_ += text("extern \"C\" __global__ void __launch_bounds__(", kFusedThreads, ") fused(");
    parameters();
    s_ += ", long long n, int vector) {\n";
    std::string operands;
    for (size_t i = 0; i < in_.size(); ++i) operands += text(", a", i);
    for (size_t o = 0; o < out_.size(); ++o) operands += text(", y", o);
    s_ += text("  const long long row = (long long)blockIdx.x * ", kFusedThreads / lanes_, " + threadIdx.x / ", lanes_,
               ";\n");
    s_ +=
        text("  const bool live = row < n / ", p_.inner.back(), ";\n  const int lane = threadIdx.x % ", lanes_, ";\n");
    s_ += text("  if (vector) body<", unit_, ">((Index)row, live, lane", operands, ");\n");
    s_ += text("  else body<1>((Index)row, live, lane", operands, ");\n}\n");
  }
  void entry() {
    s_ += text("extern \"C\" __global__ void __launch_bounds__(", kFusedThreads, ") fused(");
    parameters();
    s_ += ", long long n, int vector) {\n";
    std::string operands;
    for (size_t i = 0; i < in_.size(); ++i) operands += text(", a", i);
    for (size_t o = 0; o < out_.size(); ++o) operands += text(", y", o);
    s_ += text("  const long long i = ((long long)blockIdx.x * ", kFusedThreads, " + threadIdx.x) * ", unit_, ";\n");
    s_ += text("  if (vector && i + ", unit_, " <= n) return body<", unit_, ">((Index)i", operands, ");\n");
    s_ += text("  for (long long k = i; k < n && k < i + ", unit_, "; ++k) body<1>((Index)k", operands, ");\n}\n");
  }

  const FusedProgram& p_;
  const std::vector<uint32_t>&in_, &out_;
  bool large_;
  int unit_ = 1;
  std::vector<char> precise_;
  std::vector<int> level_;  // by value
  std::vector<char> of_row_;
  int passes_ = 1, lanes_ = 1;
  std::string s_;
};

}  // namespace

FusedSource fused_source(const FusedProgram& p, const std::vector<uint32_t>& in, const std::vector<uint32_t>& out,
                         bool large) {
  return Writer(p, in, out, large).write();
}

}  // namespace kb::cuda
