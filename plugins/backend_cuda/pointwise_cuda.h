// pointwise_cuda.h: launchers of the pointwise kernels. y may lie on an operand of its own shape and type.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "walk.h"

namespace kb::cuda::element {

enum class Unary { affine, exp, log, sigmoid, tanh, softplus, rsqrt, sqrt, sin, cos, erf, floor, is_finite };
enum class Binary { add, sub, mul, div, minimum, maximum, less };

// n elements of f32, bf16, or for affine i32 (in double, truncated).
void unary(Unary f, uint32_t dtype, const void* x, void* y, int64_t n, double mul, double add, cudaStream_t s);

// `vector`: the walk counts units of 8 elements, whose memory is aligned; else it counts elements. A step of 0 in the
// innermost axis repeats one element of that operand.
struct BinaryOperand {
  const void* at;
  uint32_t dtype;
};
void binary(Binary f, BinaryOperand a, BinaryOperand b, void* y, uint32_t dtype, const Walk<2>& walk, bool vector,
            cudaStream_t s);

}  // namespace kb::cuda::element
