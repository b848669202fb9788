// matmul.h: the base op `matmul` by cuBLASLt, in f32 (true fp32) and bf16 (fp32 sums).
#pragma once
#include <memory>

#include "kitbash/op.h"
#include "kitbash/ops.h"

namespace kb::cuda {

struct MatmulPlan;
struct Matmul {
  using Op = ops::Matmul;
  struct Plan {
    Plan();
    ~Plan();
    std::unique_ptr<MatmulPlan> state;  // null: there is nothing to multiply
  };
  static constexpr const char* name = "matmul.cublaslt";
  static constexpr uint32_t device = KB_CUDA, accumulates = 1;
  static void supports(const Call& c, const Op& op);
  static uint64_t workspace(const Call& c, const Op& op);
  static std::unique_ptr<Plan> prepare(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op, Plan& plan);
};

}  // namespace kb::cuda
