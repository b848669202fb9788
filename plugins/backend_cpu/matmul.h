// matmul.h: the base op `matmul`. Float by oneDNN; products of at most four rows and double precision by gemm.h.
#pragma once
#include <memory>
#include <vector>

#include "kitbash/op.h"
#include "kitbash/ops.h"

namespace kb::cpu {

struct MatmulPlan;
struct Matmul {
  using Op = ops::Matmul;
  struct Plan {
    Plan();
    ~Plan();
    std::unique_ptr<MatmulPlan> state;
  };
  static constexpr const char* name = "matmul.cpu";
  static constexpr uint32_t device = KB_CPU, accumulates = 1;
  static void supports(const Call& c, const Op& op);
  static uint64_t workspace(const Call& c, const Op& op);
  static std::unique_ptr<Plan> prepare(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op, Plan& plan);
};

}  // namespace kb::cpu
