// kda_test_case.h: one problem of `kda` with its operands, run through a kernel or through the reference.
#pragma once
#include <gtest/gtest.h>

#include "kernels.h"
#include "reference.h"
#include "tests/support/kernel_call.h"

namespace kda::test {
using kbtest::Array;

struct Case {
  int64_t H = 2, K = 8, V = 8;
  std::vector<double> cu{0, 20};
  int64_t tokens = -1;             // -1: the last border
  double g_low = -5, g_high = -0;  // log decays, uniform
  bool s0 = true;
  std::vector<double> slot = {};  // serving: rows of s0, which has `slots` of them
  int64_t slots = 0;
  double range_low = -5;  // what the type says of g
};

struct Operands {
  Array q, k, v, g, beta, cu, s0, slot, d_o, d_state;
};

inline Operands make(const Case& c, uint32_t dtype, uint64_t seed = 1) {
  const int64_t T = c.tokens < 0 ? int64_t(c.cu.back()) : c.tokens, D = int64_t(c.cu.size()) - 1,
                rows = c.slots ? c.slots : D;
  Operands x;
  x.q = kbtest::normal(dtype, {T, c.H, c.K}, seed), x.k = kbtest::normal(dtype, {T, c.H, c.K}, seed + 1);
  for (Array* a : {&x.q, &x.k})  // unit rows, as the component gives
    for (int64_t r = 0; r < T * c.H; ++r) {
      double n = 1e-6;
      for (int64_t i = 0; i < c.K; ++i) n += a->at(r * c.K + i) * a->at(r * c.K + i);
      for (int64_t i = 0; i < c.K; ++i) a->set(r * c.K + i, a->at(r * c.K + i) / std::sqrt(n));
    }
  x.v = kbtest::normal(dtype, {T, c.H, c.V}, seed + 2);
  x.g = kbtest::array(dtype, {T, c.H, c.K}), x.beta = kbtest::array(dtype, {T, c.H});
  std::mt19937_64 r(seed + 3);
  std::uniform_real_distribution<double> decay(c.g_low, c.g_high), unit(0, 1);
  for (int64_t i = 0; i < x.g.size(); ++i) x.g.set(i, decay(r));
  for (int64_t i = 0; i < x.beta.size(); ++i) x.beta.set(i, unit(r));
  x.g.type.lo = c.range_low, x.g.type.hi = 0;
  x.cu = kbtest::array(KB_I32, {D + 1}, c.cu);
  if (c.s0 || c.slots) x.s0 = kbtest::normal(dtype, {rows, c.H, c.K, c.V}, seed + 4, 0.3);
  if (c.slots) x.slot = kbtest::array(KB_I32, {D}, c.slot);
  x.d_o = kbtest::normal(dtype, {T, c.H, c.V}, seed + 5),
  x.d_state = kbtest::normal(dtype, {D, c.H, c.K, c.V}, seed + 6);
  return x;
}
// The same numbers in another type.
inline Array convert(const Array& a, uint32_t dtype) {
  if (a.type.dtype == KB_NONE || a.type.dtype == KB_I32) return a;
  Array b = kbtest::array(dtype, kb::shape_of(a.type));
  b.type.lo = a.type.lo, b.type.hi = a.type.hi;
  for (int64_t i = 0; i < a.size(); ++i) b.set(i, a.at(i));
  return b;
}
inline Operands convert(const Operands& x, uint32_t t) {
  return {convert(x.q, t),  convert(x.k, t),  convert(x.v, t),    convert(x.g, t),   convert(x.beta, t),
          convert(x.cu, t), convert(x.s0, t), convert(x.slot, t), convert(x.d_o, t), convert(x.d_state, t)};
}

inline kbtest::Options threads(int32_t n) {
  kbtest::Options o;
  o.threads = n;
  return o;
}
inline kbtest::Options unwanted(uint64_t bits) {
  kbtest::Options o;
  o.unwanted = bits;
  return o;
}

inline std::vector<kb_attr> scale_of(const Operands& x) {
  return {kb::default_attr("scale", 1 / std::sqrt(double(x.q.type.shape[2])))};
}
inline std::vector<const Array*> forward_inputs(const Operands& x) {
  return {&x.q, &x.k, &x.v, &x.g, &x.beta, &x.cu, &x.s0, &x.slot};
}
inline std::vector<const Array*> backward_inputs(const Operands& x) {
  return {&x.q, &x.k, &x.v, &x.g, &x.beta, &x.cu, &x.s0, &x.d_o, &x.d_state};
}
inline std::vector<Array> forward_outputs(const Operands& x) {
  const kb_type& q = x.q.type;
  const int64_t V = x.v.type.shape[2], rows = x.slot.type.dtype ? x.s0.type.shape[0] : x.cu.type.shape[0] - 1;
  return {kbtest::array(q.dtype, kb::shape_of(x.v.type)), kbtest::array(q.dtype, {rows, q.shape[1], q.shape[2], V})};
}
inline std::vector<Array> backward_outputs(const Operands& x) {
  std::vector<Array> o;
  for (const Array* a : {&x.q, &x.k, &x.v, &x.g, &x.beta})
    o.push_back(kbtest::array(x.q.type.dtype, kb::shape_of(a->type)));
  const kb_type& q = x.q.type;
  o.push_back(kbtest::array(q.dtype, {x.cu.type.shape[0] - 1, q.shape[1], q.shape[2], x.v.type.shape[2]}));
  return o;
}

template <class Kernel>
std::vector<Array> run(const Operands& x, const kbtest::Options& o = {}) {
  constexpr bool forward = std::is_same_v<typename Kernel::Op, KdaOp>;
  std::vector<Array> out = forward ? forward_outputs(x) : backward_outputs(x);
  kbtest::run(kb::kernel_table<Kernel>(), scale_of(x), forward ? forward_inputs(x) : backward_inputs(x), out, o);
  return out;
}

// The reference in double, whatever the type of x.
struct RefForward {
  using Op = KdaOp;
  static constexpr const char* name = "reference";
  static constexpr uint32_t device = KB_CPU;
  static void launch(const kb::Call& c, const Op& op) {
    const Problem<double> p = forward_problem<double>(c, op);
    each_head(c, p, [&](const Span& s, int32_t) { reference::forward(p, s); });
    clear_unused(p, p.o, p.heads * p.V);
  }
};
struct RefBackward {
  using Op = KdaBackwardOp;
  static constexpr const char* name = "reference";
  static constexpr uint32_t device = KB_CPU;
  static void launch(const kb::Call& c, const Op& op) {
    const Problem<double> p = backward_problem<double>(c, op);
    each_head(c, p, [&](const Span& s, int32_t) { reference::backward(p, s); });
    for (double* x : {p.dq, p.dk, p.dg}) clear_unused(p, x, p.heads * p.K);
    clear_unused(p, p.dv, p.heads * p.V), clear_unused(p, p.dbeta, p.heads);
  }
};
template <class Kernel>
std::vector<Array> expected(const Operands& x) {
  using Ref = std::conditional_t<std::is_same_v<typename Kernel::Op, KdaOp>, RefForward, RefBackward>;
  return run<Ref>(convert(x, KB_F64));
}

// Sixteen factors and sums over K, in another order than the reference: some hundred roundings, of numbers of order
// one.
inline double tolerance(uint32_t dtype) { return dtype == KB_F64 ? 1e-13 : 5e-6; }

inline void expect_near(const std::vector<Array>& got, const std::vector<Array>& want, double tolerance,
                        const std::string& what) {
  double largest = 0;
  for (const Array& w : want) {
    double n = 0;
    for (int64_t i = 0; i < w.size(); ++i) n += w.at(i) * w.at(i);
    largest = std::max(largest, std::sqrt(n));
  }
  for (size_t i = 0; i < want.size(); ++i) {
    const double e = kbtest::relative_error(got[i], want[i], std::max(1e-3 * largest, 1e-30));
    EXPECT_LE(e, tolerance) << what << ", output " << i;
  }
}
template <class Kernel>
void expect_reference(const Case& c, uint32_t dtype, const std::string& what, double slack = 1) {
  const Operands x = make(c, dtype);
  expect_near(run<Kernel>(x), expected<Kernel>(x), slack * tolerance(dtype),
              what + (dtype == KB_F64 ? " double" : " float"));
}

}  // namespace kda::test
