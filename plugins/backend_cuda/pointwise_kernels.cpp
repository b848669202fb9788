#include "pointwise_kernels.h"

#include "cast_cuda.h"
#include "pointwise_cuda.h"

namespace kb::cuda::element {
namespace {

void same_type(const Call& c) {
  if (c.in(0).dtype != c.out(0).dtype)
    fail("the result must have the operand's type, ", dtype_name(c.in(0).dtype), ", but got ",
         dtype_name(c.out(0).dtype));
}
void floats_only(const Call& c) {
  takes(c, {kFloats});
  same_type(c);
}
void run(const Call& c, Unary f, double mul = 1, double add = 0) {
  if (!c.wanted(0)) return;
  unary(f, c.out(0).dtype, c.get<void>(0), c.put<void>(0), elements(c.out(0)), mul, add, stream(c));
  launched();
}

void two_numbers(const Call& c, bool integers) {
  const uint32_t types = kFloats | (integers ? kIds : 0);
  takes(c, {types, types});
  const uint32_t a = c.in(0).dtype, b = c.in(1).dtype, y = c.out(0).dtype;
  const uint32_t want = a == KB_BF16 && b == KB_BF16 ? KB_BF16 : a == KB_I32 ? KB_I32 : KB_F32;
  if ((a == KB_I32) != (b == KB_I32)) fail("operands must both be floats or both i32 on cuda");
  if (y != want) fail("the result must be ", dtype_name(want), " but got ", dtype_name(y));
}
void run(const Call& c, Binary f) {
  if (!c.wanted(0)) return;
  const kb_type& t = c.out(0);
  const kb_type* in[2] = {&c.in(0), &c.in(1)};
  const WalkMaker<2> w = broadcast_walk<2>(t, in);
  // Units of 8 need an aligned start of every row in each operand that has one element an element.
  bool vector = w.inner() % 8 == 0 && aligned(c.put<void>(0), 16);
  for (uint32_t k = 0; k < 2; ++k)
    if (w.inner_step(int(k))) vector = vector && aligned(c.get<void>(k), 16) && w.aligned(int(k), 8);
  binary(f, {c.get<void>(0), c.in(0).dtype}, {c.get<void>(1), c.in(1).dtype}, c.put<void>(0), t.dtype,
         w.make(vector ? 8 : 1), vector, stream(c));
  launched();
}

}  // namespace

void AffineKernel::supports(const Call& c, const Op&) {
  takes(c, {kFloats | kIds});
  same_type(c);
}
void AffineKernel::launch(const Call& c, const Op& o) { run(c, Unary::affine, o.mul, o.add); }
void CastKernel::supports(const Call& c, const Op&) { takes(c, {kNumbers}), gives(c, {kNumbers}); }
void CastKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  cast(c.get<void>(0), c.in(0).dtype, c.put<void>(0), c.out(0).dtype, elements(c.out(0)), stream(c));
  launched();
}

#define KB_UNARY(T, f)                                                   \
  void T##Kernel::supports(const Call& c, const Op&) { floats_only(c); } \
  void T##Kernel::launch(const Call& c, const Op&) { run(c, Unary::f); }
KB_UNARY(Exp, exp)
KB_UNARY(Log, log)
KB_UNARY(Sigmoid, sigmoid)
KB_UNARY(Tanh, tanh)
KB_UNARY(Softplus, softplus)
KB_UNARY(Rsqrt, rsqrt)
KB_UNARY(Sqrt, sqrt)
KB_UNARY(Sin, sin)
KB_UNARY(Cos, cos)
KB_UNARY(Erf, erf)
KB_UNARY(Floor, floor)
KB_UNARY(IsFinite, is_finite)
#undef KB_UNARY

#define KB_BINARY(T, f, integers)                                                  \
  void T##Kernel::supports(const Call& c, const Op&) { two_numbers(c, integers); } \
  void T##Kernel::launch(const Call& c, const Op&) { run(c, Binary::f); }
KB_BINARY(Add, add, true)
KB_BINARY(Sub, sub, true)
KB_BINARY(Mul, mul, true)
KB_BINARY(Div, div, false)
KB_BINARY(Minimum, minimum, true)
KB_BINARY(Maximum, maximum, true)
KB_BINARY(Less, less, true)
#undef KB_BINARY

}  // namespace kb::cuda::element
