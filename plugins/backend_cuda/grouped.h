// grouped.h: products of rows sorted by expert: `grouped_linear` and `grouped_outer`.
#pragma once
#include <memory>

#include "kitbash/op.h"
#include "kitbash/ops.h"

namespace kb::cuda {

struct GroupedLinearSimt {  // any size, f32 and bf16; rows past the last segment become zero
  using Op = ops::GroupedLinear;
  static constexpr const char* name = "grouped_linear.simt";
  static constexpr uint32_t device = KB_CUDA, accumulates = 1;
  static void supports(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op);
};
struct GroupedOuterSimt {
  using Op = ops::GroupedOuter;
  static constexpr const char* name = "grouped_outer.simt";
  static constexpr uint32_t device = KB_CUDA, accumulates = 1;
  static void supports(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op);
};

// On the tensor cores: bf16, widths that are multiples of 8, segments of any length. Rows of a segment's last tile that are
// not its own are multiplied and dropped, so padding segments to whole tiles would save nothing.
struct GroupedPlan;
struct GroupedHopper {
  GroupedHopper();
  ~GroupedHopper();
  std::unique_ptr<GroupedPlan> state;
};
struct GroupedLinearWgmma {
  using Op = ops::GroupedLinear;
  using Plan = GroupedHopper;
  static constexpr const char* name = "grouped_linear.wgmma";
  static constexpr uint32_t device = KB_CUDA, accumulates = 1, arch_min = 90, arch_max = 90;
  static constexpr int32_t priority = 10;
  static void supports(const Call& c, const Op& op);
  static std::unique_ptr<Plan> prepare(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op, Plan& plan);
};
struct GroupedOuterWgmma {
  using Op = ops::GroupedOuter;
  using Plan = GroupedHopper;
  static constexpr const char* name = "grouped_outer.wgmma";
  static constexpr uint32_t device = KB_CUDA, accumulates = 1, arch_min = 90, arch_max = 90;
  static constexpr int32_t priority = 10;
  static void supports(const Call& c, const Op& op);
  static std::unique_ptr<Plan> prepare(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op, Plan& plan);
};

}  // namespace kb::cuda
