// Pointwise ops. Ranges follow by interval arithmetic; mixed float types compute in the wider one.
#include "ops/common.h"
#include "ops/ops.h"

namespace kitbash {
namespace {
using kb::Grad;
using kb::Infer;
using kb::Value;

double times(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }  // a bound of 0 times infinity is 0
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return x > 30 ? x : std::log1p(std::exp(x)); }

template <class Base>
struct Unary : Base {
  static constexpr uint32_t traits = KB_POINTWISE;
  static const kb_type& operand(Infer& s) {
    const kb_type& x = s.in(0, "x");
    if (!is_float(x.dtype)) kb::fail("x must be a float but got ", kb::dtype_name(x.dtype));
    return x;
  }
  double flops(const kb::Call& c) const { return double(kb::elements(c.out(0))); }
};
// F: monotone function, whose range is the image of the bounds.
template <class Base, double (*F)(double)>
struct Monotone : Unary<Base> {
  void infer(Infer& s) const {
    const kb_type& x = this->operand(s);
    set_range(s.like(x), F(x.lo), F(x.hi));
  }
};

struct AffineOp : Unary<kb::ops::Affine> {
  void infer(Infer& s) const {
    const kb_type& x = s.in(0, "x");
    set_range(s.like(x), times(mul, x.lo) + add, times(mul, x.hi) + add);
  }
  void gradient(Grad& g) const { g.down(0, mul * g.up(0)); }
};
struct ExpOp : Monotone<kb::ops::Exp, std::exp> {
  void gradient(Grad& g) const { g.down(0, g.up(0) * g.out(0)); }
};
double log_bound(double x) { return x > 0 ? std::log(x) : -INFINITY; }
struct LogOp : Monotone<kb::ops::Log, log_bound> {
  void gradient(Grad& g) const { g.down(0, g.up(0) / g.in(0)); }
};
struct SigmoidOp : Monotone<kb::ops::Sigmoid, sigmoid> {
  void gradient(Grad& g) const { g.down(0, g.up(0) * (g.out(0) * (1 - g.out(0)))); }
};
struct TanhOp : Monotone<kb::ops::Tanh, std::tanh> {
  void gradient(Grad& g) const { g.down(0, g.up(0) * (1 - g.out(0) * g.out(0))); }
};
struct SoftplusOp : Monotone<kb::ops::Softplus, softplus> {
  void gradient(Grad& g) const { g.down(0, g.up(0) * g.b.sigmoid(g.in(0))); }
};
struct ErfOp : Monotone<kb::ops::Erf, std::erf> {
  void gradient(Grad& g) const { g.down(0, g.up(0) * (2 / std::sqrt(M_PI) * g.b.exp(-(g.in(0) * g.in(0))))); }
};
struct FloorOp : Monotone<kb::ops::Floor, std::floor> {};
double sqrt_bound(double x) { return x > 0 ? std::sqrt(x) : 0; }
struct SqrtOp : Monotone<kb::ops::Sqrt, sqrt_bound> {
  void gradient(Grad& g) const { g.down(0, 0.5 * (g.up(0) / g.out(0))); }
};
struct RsqrtOp : Unary<kb::ops::Rsqrt> {
  void infer(Infer& s) const {
    const kb_type& x = operand(s);
    set_range(s.like(x), x.hi > 0 ? 1 / std::sqrt(x.hi) : 0, x.lo > 0 ? 1 / std::sqrt(x.lo) : INFINITY);
  }
  void gradient(Grad& g) const {
    const Value y = g.out(0);
    g.down(0, g.up(0) * (-0.5 * (y * y * y)));
  }
};
struct SinOp : Unary<kb::ops::Sin> {
  void infer(Infer& s) const { set_range(s.like(operand(s)), -1, 1); }
  void gradient(Grad& g) const { g.down(0, g.up(0) * g.b.cos(g.in(0))); }
};
struct CosOp : Unary<kb::ops::Cos> {
  void infer(Infer& s) const { set_range(s.like(operand(s)), -1, 1); }
  void gradient(Grad& g) const { g.down(0, -(g.up(0) * g.b.sin(g.in(0)))); }
};
struct IsFiniteOp : Unary<kb::ops::IsFinite> {
  void infer(Infer& s) const { set_range(s.like(operand(s)), 0, 1); }
};
struct DetachOp : Unary<kb::ops::Detach> {
  void infer(Infer& s) const { put(s, s.in(0, "x")); }
};
struct CastOp : Unary<kb::ops::Cast> {
  void infer(Infer& s) const {
    kb_type t = s.in(0, "x");
    if (dtype < KB_U8 || dtype > KB_F64) kb::fail("dtype ", dtype, " does not exist");
    t.dtype = uint32_t(dtype);
    put(s, t);
  }
  void gradient(Grad& g) const { g.down(0, g.b.cast(g.up(0), kb_dtype(g.in(0).type().dtype))); }
};

template <class Base>
struct Binary : Base {
  static constexpr uint32_t traits = KB_POINTWISE;
  // The output, with its operands; i32 against i32 stays i32.
  static kb_type& start(Infer& s, const kb_type*& a, const kb_type*& b) {
    a = &s.in(0, "a"), b = &s.in(1, "b");
    kb_type t = broadcast_type(*a, *b);
    if (is_float(a->dtype) != is_float(b->dtype))
      kb::fail("operands must both be floats or both integers but got ", kb::dtype_name(a->dtype), " and ",
               kb::dtype_name(b->dtype));
    t.dtype = std::max(a->dtype, b->dtype);
    return put(s, t);
  }
  double flops(const kb::Call& c) const { return double(kb::elements(c.out(0))); }
};
struct AddOp : Binary<kb::ops::Add> {
  void infer(Infer& s) const {
    const kb_type *a, *b;
    kb_type& t = start(s, a, b);
    set_range(t, a->lo + b->lo, a->hi + b->hi);
  }
  void gradient(Grad& g) const { g.down_to(0, g.up(0)), g.down_to(1, g.up(0)); }
};
struct SubOp : Binary<kb::ops::Sub> {
  void infer(Infer& s) const {
    const kb_type *a, *b;
    kb_type& t = start(s, a, b);
    set_range(t, a->lo - b->hi, a->hi - b->lo);
  }
  void gradient(Grad& g) const {
    g.down_to(0, g.up(0));
    if (g.need(1)) g.down_to(1, -g.up(0));
  }
};
struct MulOp : Binary<kb::ops::Mul> {
  void infer(Infer& s) const {
    const kb_type *a, *b;
    kb_type& t = start(s, a, b);
    const auto [lo, hi] =
        std::minmax({times(a->lo, b->lo), times(a->lo, b->hi), times(a->hi, b->lo), times(a->hi, b->hi)});
    set_range(t, lo, hi);
  }
  void gradient(Grad& g) const {
    if (g.need(0)) g.down_to(0, g.up(0) * g.in(1));
    if (g.need(1)) g.down_to(1, g.up(0) * g.in(0));
  }
};
struct DivOp : Binary<kb::ops::Div> {
  void infer(Infer& s) const {
    const kb_type *a, *b;
    start(s, a, b);
    if (!is_float(a->dtype)) kb::fail("operands must be floats but got ", kb::dtype_name(a->dtype));
  }
  void gradient(Grad& g) const {
    if (g.need(0)) g.down_to(0, g.up(0) / g.in(1));
    if (g.need(1)) g.down_to(1, -(g.up(0) * g.out(0) / g.in(1)));
  }
};
// The gradient of a tie goes to the first operand.
void select_gradient(Grad& g, Value second_wins) {
  if (g.need(0)) g.down_to(0, g.up(0) * (1 - second_wins));
  if (g.need(1)) g.down_to(1, g.up(0) * second_wins);
}
struct MinimumOp : Binary<kb::ops::Minimum> {
  void infer(Infer& s) const {
    const kb_type *a, *b;
    kb_type& t = start(s, a, b);
    set_range(t, std::min(a->lo, b->lo), std::min(a->hi, b->hi));
  }
  void gradient(Grad& g) const { select_gradient(g, g.b.less(g.in(1), g.in(0))); }
};
struct MaximumOp : Binary<kb::ops::Maximum> {
  void infer(Infer& s) const {
    const kb_type *a, *b;
    kb_type& t = start(s, a, b);
    set_range(t, std::max(a->lo, b->lo), std::max(a->hi, b->hi));
  }
  void gradient(Grad& g) const { select_gradient(g, g.b.less(g.in(0), g.in(1))); }
};
struct LessOp : Binary<kb::ops::Less> {
  void infer(Infer& s) const {
    const kb_type *a, *b;
    set_range(start(s, a, b), 0, 1);
  }
};

struct FusedOp : kb::ops::Fused {
  static constexpr uint32_t traits = KB_POINTWISE;
  void infer(Infer&) const { kb::fail("only the host makes fused nodes; use the ops that they are made of"); }
  double flops(const kb::Call&) const { return program.n > 4 ? program.at[2] * program.at[4] : 0; }
};

}  // namespace

std::vector<const kb_op*> pointwise_ops() {
  return op_tables<AffineOp, ExpOp, LogOp, SigmoidOp, TanhOp, SoftplusOp, RsqrtOp, SqrtOp, SinOp, CosOp, ErfOp, FloorOp,
                   IsFiniteOp, DetachOp, CastOp, AddOp, SubOp, MulOp, DivOp, MinimumOp, MaximumOp, LessOp, FusedOp>();
}

}  // namespace kitbash
