// grouped.h: products of rows sorted by expert: `grouped_linear` and `grouped_outer`.
#pragma once
#include "kitbash/op.h"
#include "kitbash/ops.h"

namespace kb::cpu {

struct GroupedLinear {  // rows past the last segment become zero
  using Op = ops::GroupedLinear;
  static constexpr const char* name = "grouped_linear.cpu";
  static constexpr uint32_t device = KB_CPU, accumulates = 1;
  static void supports(const Call& c, const Op& op);
  static uint64_t workspace(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op);
};

struct GroupedOuter {
  using Op = ops::GroupedOuter;
  static constexpr const char* name = "grouped_outer.cpu";
  static constexpr uint32_t device = KB_CPU, accumulates = 1;
  static void supports(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op);
};

}  // namespace kb::cpu
