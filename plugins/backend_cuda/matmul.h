// matmul.h: the base op `matmul` by cuBLASLt, in f32 (true fp32) and bf16 (fp32 sums); and of bf16 with f32.
#pragma once
#include <memory>

#include "kitbash/op.h"
#include "kitbash/ops.h"
#include "lt_product.h"

namespace kb::cuda {

struct MatmulPlan {
  std::unique_ptr<LtProduct> product;  // null: there is nothing to multiply
};
struct Matmul {
  using Op = ops::Matmul;
  using Plan = MatmulPlan;
  static constexpr const char* name = "matmul.cublaslt";
  static constexpr uint32_t device = KB_CUDA, accumulates = 1;
  static void supports(const Call& c, const Op& op);
  static uint64_t workspace(const Call& c, const Op& op);
  static std::unique_ptr<Plan> prepare(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op, Plan& plan);
};

// One operand bf16, the other f32, the result f32 as if both were: the f32 one is cut into three of bf16, which hold all its
// digits, and their products on the tensor cores are added in fp32. a [.., m, k] bf16 with b [n, k] transposed, or a [k, m]
// transposed with b [k, n] bf16: the products of a router, forward and for its weight.
struct MatmulMixed {
  using Op = ops::Matmul;
  using Plan = MatmulPlan;
  static constexpr const char* name = "matmul.mixed";
  static constexpr uint32_t device = KB_CUDA, accumulates = 1;
  static void supports(const Call& c, const Op& op);
  static uint64_t workspace(const Call& c, const Op& op);
  static std::unique_ptr<Plan> prepare(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op, Plan& plan);
};

}  // namespace kb::cuda
