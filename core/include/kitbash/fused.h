// fused.h: what one node of the base op "fused" computes: a group of pointwise nodes, as a straight line of steps on every
// element. The host's pass `fuse` makes them for devices that have a kernel for the op; nobody else does.
//
// The row-major index of `elements` elements is split into axes: the first has as many values as remain, the others have the
// sizes in `inner`. An operand has a step in memory for each axis, 0 where it repeats. Arithmetic is f32: a value is rounded
// to its type where it leaves the group, not between steps.
//
// The step "sum_row" adds up a value over the last axis. It, and what is computed from such sums and operands that repeat over
// the last axis, has one value a row; a result of that kind has elements / inner.back() elements, every other `elements`.
#pragma once
#include <iterator>

#include "kitbash/attrs.h"

namespace kb {

// Base ops that may be steps. The order is ABI: append only.
inline constexpr const char* fused_steps[] = {"affine", "exp",  "log",    "sigmoid", "tanh",  "softplus",  "rsqrt",
                                              "sqrt",   "sin",  "cos",    "erf",     "floor", "is_finite", "detach",
                                              "cast",   "add",  "sub",    "mul",     "div",   "minimum",   "maximum",
                                              "less",   "fill", "sum_row"};  // fill: the constant `add`
inline constexpr int n_fused_steps = int(std::size(fused_steps));
inline int fused_step(std::string_view op) {  // -1: may not be one
  for (int i = 0; i < n_fused_steps; ++i)
    if (op == fused_steps[i]) return i;
  return -1;
}
// Operands of a step.
inline int fused_operands(int step) { return step == 22 ? 0 : step < 15 || step == 23 ? 1 : 2; }

struct FusedStep {
  int op = 0;          // index in fused_steps
  uint32_t dtype = 0;  // of the base op's result
  int a = -1, b = -1;  // values: inputs first, then steps
  double mul = 1, add = 0;
};

struct FusedProgram {
  int64_t elements = 1;
  std::vector<int64_t> inner;
  std::vector<std::vector<int64_t>> stride;  // by input: of the first axis, then of the inner ones
  std::vector<FusedStep> steps;
  std::vector<int> out;       // the value of each output
  std::vector<char> row_out;  // is it one a row; may be left empty when none is

  bool sums_rows() const {
    for (const FusedStep& s : steps)
      if (std::string_view(fused_steps[s.op]) == "sum_row") return true;
    return false;
  }
  std::vector<double> flat() const {  // the attribute `program`
    std::vector<double> f{double(inner.size()), double(stride.size()), double(steps.size()), double(out.size()),
                          double(elements)};
    for (int64_t n : inner) f.push_back(double(n));
    for (const auto& s : stride)
      for (int64_t n : s) f.push_back(double(n));
    for (const FusedStep& s : steps)
      f.insert(f.end(), {double(s.op), double(s.dtype), double(s.a), double(s.b), s.mul, s.add});
    for (int v : out) f.push_back(double(v));
    for (size_t o = 0; o < out.size(); ++o) f.push_back(o < row_out.size() && row_out[o] ? 1 : 0);
    return f;
  }
  static FusedProgram from(const Doubles& d) {
    if (d.n < 5) fail("a fused node must have a program");
    uint32_t at = 5;
    const auto next = [&] {
      if (at >= d.n) fail("the program of a fused node is cut short at ", d.n, " numbers");
      return d.at[at++];
    };
    FusedProgram p;
    p.inner.resize(size_t(d.at[0])), p.stride.resize(size_t(d.at[1])), p.steps.resize(size_t(d.at[2]));
    p.out.resize(size_t(d.at[3])), p.elements = int64_t(d.at[4]);
    for (int64_t& n : p.inner) n = int64_t(next());
    for (auto& s : p.stride) {
      s.resize(p.inner.size() + 1);
      for (int64_t& n : s) n = int64_t(next());
    }
    for (FusedStep& s : p.steps) {
      s.op = int(next()), s.dtype = uint32_t(next()), s.a = int(next()), s.b = int(next()), s.mul = next(),
      s.add = next();
      if (s.op < 0 || s.op >= n_fused_steps) fail("a fused node has the unknown step ", s.op);
    }
    for (int& v : p.out) v = int(next());
    for (size_t o = 0; o < p.out.size(); ++o) p.row_out.push_back(next() != 0);
    return p;
  }
};

}  // namespace kb
