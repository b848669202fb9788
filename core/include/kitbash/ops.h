// ops.h: the base ops: names and attributes. They are ABI: names, attributes (append only), order of inputs and outputs and
// tie rules are pinned by tests/abi. `Builder` has one method for each; a plugin may bring a faster kernel for any of them.
// Shapes, rules and sources are listed in core/README.md, "Base ops".
#pragma once
#include "kitbash/attrs.h"

namespace kb::ops {

#define KB_PLAIN_OP(T, id)                  \
  struct T {                                \
    static constexpr const char* name = id; \
  }

// ---- pointwise, one operand
struct Affine {  // mul * x + add
  using Attributes = Affine;
  static constexpr const char* name = "affine";
  double mul = 1, add = 0;
};
KB_PLAIN_OP(Exp, "exp");
KB_PLAIN_OP(Log, "log");
KB_PLAIN_OP(Sigmoid, "sigmoid");
KB_PLAIN_OP(Tanh, "tanh");
KB_PLAIN_OP(Softplus, "softplus");
KB_PLAIN_OP(Rsqrt, "rsqrt");
KB_PLAIN_OP(Sqrt, "sqrt");
KB_PLAIN_OP(Sin, "sin");
KB_PLAIN_OP(Cos, "cos");
KB_PLAIN_OP(Erf, "erf");
KB_PLAIN_OP(Floor, "floor");         // no gradient
KB_PLAIN_OP(IsFinite, "is_finite");  // 1 or 0; no gradient
KB_PLAIN_OP(Detach, "detach");       // x, with no gradient
struct Cast {
  using Attributes = Cast;
  static constexpr const char* name = "cast";
  int64_t dtype = KB_WIDE;
};
// ---- pointwise, two operands; they broadcast like NumPy and compute in the wider of their float types
KB_PLAIN_OP(Add, "add");
KB_PLAIN_OP(Sub, "sub");
KB_PLAIN_OP(Mul, "mul");
KB_PLAIN_OP(Div, "div");
KB_PLAIN_OP(Minimum, "minimum");  // ties: the gradient goes to the first operand
KB_PLAIN_OP(Maximum, "maximum");
KB_PLAIN_OP(Less, "less");  // 1 where a < b, else 0; no gradient
// ---- reductions
struct Reduce {
  int64_t axis = -1;
  bool keep = false;
};
struct Sum : Reduce {
  using Attributes = Sum;
  static constexpr const char* name = "sum";
};
struct Amax : Reduce {  // no gradient
  using Attributes = Amax;
  static constexpr const char* name = "amax";
};
struct SumTo {  // the gradient of broadcasting
  using Attributes = SumTo;
  static constexpr const char* name = "sum_to";
  Shape shape;
};
KB_PLAIN_OP(SquareSum, "square_sum");  // x.. of one type -> [] wide, over all of them; no gradient
KB_PLAIN_OP(Softmax, "softmax");       // last axis
// ---- matrix products
struct Matmul {  // a [.., m, k], b [.., k, n] (or [k, n] for all of a); ta, tb: the last two axes are swapped
  using Attributes = Matmul;
  static constexpr const char* name = "matmul";
  bool ta = false, tb = false;
};
// ---- norms
struct RmsNorm {  // x [.., n], w [n] -> like x
  using Attributes = RmsNorm;
  static constexpr const char* name = "rms_norm";
  double eps = 1e-5;
};
struct RmsNormBackward {  // x, w, dy -> dx, dw
  using Attributes = RmsNormBackward;
  static constexpr const char* name = "rms_norm_backward";
  double eps = 1e-5;
};
// ---- shape
struct Reshape {
  using Attributes = Reshape;
  static constexpr const char* name = "reshape";
  Shape shape;  // one -1 allowed
};
struct Permute {
  using Attributes = Permute;
  static constexpr const char* name = "permute";
  Shape axes;
};
struct Slice {
  using Attributes = Slice;
  static constexpr const char* name = "slice";
  int64_t axis = 0, begin = 0, end = 0;
};
struct Unslice {  // x inside zeros: `size` is the result's width on `axis`
  using Attributes = Unslice;
  static constexpr const char* name = "unslice";
  int64_t axis = 0, begin = 0, size = 0;
};
struct Concat {
  using Attributes = Concat;
  static constexpr const char* name = "concat";
  int64_t axis = 0;
};
struct Broadcast {
  using Attributes = Broadcast;
  static constexpr const char* name = "broadcast";
  Shape shape;
};
KB_PLAIN_OP(Copy, "copy");
// ---- rows
KB_PLAIN_OP(Gather, "gather");  // x [n, ..], rows [m] i32 -> [m, ..]; row -1 reads zeros
struct ScatterAdd {             // x [m, ..], rows [m] -> [n, ..]; row -1 is dropped
  using Attributes = ScatterAdd;
  static constexpr const char* name = "scatter_add";
  int64_t rows = 0;
};
KB_PLAIN_OP(Take, "take");  // x [n, m], ids [n, k] i32 -> [n, k]
struct Untake {             // x [n, k], ids [n, k] (distinct in a row) -> [n, width]
  using Attributes = Untake;
  static constexpr const char* name = "untake";
  int64_t width = 0;
};
struct Topk {  // x [n, m] -> values [n, k] descending, ids [n, k] i32; ties: the lower id first
  using Attributes = Topk;
  static constexpr const char* name = "topk";
  int64_t k = 1;
};
// ---- sources
struct Fill {
  using Attributes = Fill;
  static constexpr const char* name = "fill";
  Shape shape;
  double value = 0;
  int64_t dtype = KB_WIDE;
};
struct Vector {
  using Attributes = Vector;
  static constexpr const char* name = "vector";
  Doubles values;
  int64_t dtype = KB_WIDE;
};
struct Iota {
  using Attributes = Iota;
  static constexpr const char* name = "iota";
  int64_t n = 0;
};
struct Normal {  // Philox4x32-10 by (seed, element), Box-Muller
  using Attributes = Normal;
  static constexpr const char* name = "normal";
  Shape shape;
  double std = 1;
  int64_t seed = 0, dtype = KB_WIDE;
};
struct Uniform {
  using Attributes = Uniform;
  static constexpr const char* name = "uniform";
  Shape shape;
  double lo = 0, hi = 1;
  int64_t seed = 0, dtype = KB_WIDE;
};
// ---- sequences; cu [documents + 1] i32, past, slot [documents] i32 (kinds/sequence.h)
KB_PLAIN_OP(ShortConv, "short_conv");                   // x [T, c], w [c, taps], cu, state?, slot? -> y, state
KB_PLAIN_OP(ShortConvBackward, "short_conv_backward");  // x, w, cu, dy -> dx, dw
struct Attention {  // q [T, h, d], k [T, g, d], v [T, g, e], cu -> o [T, h, e], lse [T, h], peak [h]
  using Attributes = Attention;
  static constexpr const char* name = "attention";
  double scale = 1;
  bool causal = true;
};
struct AttentionBackward {  // q, k, v, cu, o, lse, do -> dq, dk, dv
  using Attributes = AttentionBackward;
  static constexpr const char* name = "attention_backward";
  double scale = 1;
  bool causal = true;
};
// cache [slots, capacity, ..], rows [T, ..], cu, past, slot? -> cache, in place
KB_PLAIN_OP(CacheAppend, "cache_append");
struct AttentionCached {  // q [T, h, d], k, v [slots, capacity, g, *], cu, past, slot? -> o [T, h, e]
  using Attributes = AttentionCached;
  static constexpr const char* name = "attention_cached";
  double scale = 1;
};
// ---- experts
struct ExpertSort {  // ids [T, k] -> source [rows] (flat index into ids; -1: padding), offsets [experts + 1] i32
  using Attributes = ExpertSort;
  static constexpr const char* name = "expert_sort";
  int64_t experts = 0, tile = 0;  // tile: rows a segment is padded to; 0: what the device likes
};
struct Dispatch {  // x [T, d], source [rows] -> [rows, d]
  using Attributes = Dispatch;
  static constexpr const char* name = "dispatch";
  int64_t active = 1;
};
struct Combine {  // rows [rows, d], source [rows] -> [tokens, d], the sum of a token's rows
  using Attributes = Combine;
  static constexpr const char* name = "combine";
  int64_t tokens = 0, active = 1;
};
struct GroupedLinear {  // rows [rows, i], w [experts, o, i], offsets -> [rows, o]; tw = false: w [experts, i, o]
  using Attributes = GroupedLinear;
  static constexpr const char* name = "grouped_linear";
  int64_t used = 0;  // rows that are no padding, for the cost
  bool tw = true;
};
struct GroupedOuter {  // a [rows, o], b [rows, i], offsets -> [experts, o, i]; zero for an empty expert
  using Attributes = GroupedOuter;
  static constexpr const char* name = "grouped_outer";
  int64_t experts = 0, used = 0;
};
// ---- loss; target [n] i32, -1: not counted; weight [n] wide
KB_PLAIN_OP(CrossEntropy, "cross_entropy");                   // logits [n, m], target, weight -> sum [], lse [n] (wide)
KB_PLAIN_OP(CrossEntropyBackward, "cross_entropy_backward");  // logits, target, weight, lse, up [] -> dlogits
// ---- collectives
struct AllReduce {  // how: sum, max; over: tokens (every rank that holds other tokens of this step)
  using Attributes = AllReduce;
  static constexpr const char* name = "all_reduce";
  Text how = "sum", over = "tokens";
};
// ---- made by the host's pass `fuse` alone
struct Fused {  // pointwise nodes that run as one: kitbash/fused.h
  using Attributes = Fused;
  static constexpr const char* name = "fused";
  Doubles program;
};
#undef KB_PLAIN_OP

}  // namespace kb::ops

KITBASH_ATTRS(kb::ops::Affine, attr("mul", &Self::mul), attr("add", &Self::add))
KITBASH_ATTRS(kb::ops::Cast, attr("dtype", &Self::dtype))
KITBASH_ATTRS(kb::ops::Sum, attr("axis", &Self::axis), attr("keep", &Self::keep))
KITBASH_ATTRS(kb::ops::Amax, attr("axis", &Self::axis), attr("keep", &Self::keep))
KITBASH_ATTRS(kb::ops::SumTo, attr("shape", &Self::shape))
KITBASH_ATTRS(kb::ops::Matmul, attr("ta", &Self::ta), attr("tb", &Self::tb))
KITBASH_ATTRS(kb::ops::RmsNorm, attr("eps", &Self::eps))
KITBASH_ATTRS(kb::ops::RmsNormBackward, attr("eps", &Self::eps))
KITBASH_ATTRS(kb::ops::Reshape, attr("shape", &Self::shape))
KITBASH_ATTRS(kb::ops::Permute, attr("axes", &Self::axes))
KITBASH_ATTRS(kb::ops::Slice, attr("axis", &Self::axis), attr("begin", &Self::begin), attr("end", &Self::end))
KITBASH_ATTRS(kb::ops::Unslice, attr("axis", &Self::axis), attr("begin", &Self::begin), attr("size", &Self::size))
KITBASH_ATTRS(kb::ops::Concat, attr("axis", &Self::axis))
KITBASH_ATTRS(kb::ops::Broadcast, attr("shape", &Self::shape))
KITBASH_ATTRS(kb::ops::ScatterAdd, attr("rows", &Self::rows))
KITBASH_ATTRS(kb::ops::Untake, attr("width", &Self::width))
KITBASH_ATTRS(kb::ops::Topk, attr("k", &Self::k))
KITBASH_ATTRS(kb::ops::Fill, attr("shape", &Self::shape), attr("value", &Self::value), attr("dtype", &Self::dtype))
KITBASH_ATTRS(kb::ops::Vector, attr("values", &Self::values), attr("dtype", &Self::dtype))
KITBASH_ATTRS(kb::ops::Iota, attr("n", &Self::n))
KITBASH_ATTRS(kb::ops::Normal, attr("shape", &Self::shape), attr("std", &Self::std), attr("seed", &Self::seed),
              attr("dtype", &Self::dtype))
KITBASH_ATTRS(kb::ops::Uniform, attr("shape", &Self::shape), attr("lo", &Self::lo), attr("hi", &Self::hi),
              attr("seed", &Self::seed), attr("dtype", &Self::dtype))
KITBASH_ATTRS(kb::ops::Attention, attr("scale", &Self::scale), attr("causal", &Self::causal))
KITBASH_ATTRS(kb::ops::AttentionBackward, attr("scale", &Self::scale), attr("causal", &Self::causal))
KITBASH_ATTRS(kb::ops::AttentionCached, attr("scale", &Self::scale))
KITBASH_ATTRS(kb::ops::ExpertSort, attr("experts", &Self::experts), attr("tile", &Self::tile))
KITBASH_ATTRS(kb::ops::Dispatch, attr("active", &Self::active))
KITBASH_ATTRS(kb::ops::Combine, attr("tokens", &Self::tokens), attr("active", &Self::active))
KITBASH_ATTRS(kb::ops::GroupedLinear, attr("used", &Self::used), attr("tw", &Self::tw))
KITBASH_ATTRS(kb::ops::GroupedOuter, attr("experts", &Self::experts), attr("used", &Self::used))
KITBASH_ATTRS(kb::ops::AllReduce, attr("how", &Self::how), attr("over", &Self::over))
KITBASH_ATTRS(kb::ops::Fused, attr("program", &Self::program))
