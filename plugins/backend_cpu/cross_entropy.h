// cross_entropy.h: the loss over a vocabulary and its gradient; probabilities are never stored.
#pragma once
#include "kitbash/op.h"
#include "kitbash/ops.h"

namespace kb::cpu {

struct CrossEntropy {  // rows with target < 0 or weight 0 count nothing; their lse is 0
  using Op = ops::CrossEntropy;
  static constexpr const char* name = "cross_entropy.cpu";
  static constexpr uint32_t device = KB_CPU;
  static void supports(const Call& c, const Op& op);
  static uint64_t workspace(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op);
};

struct CrossEntropyBackward {
  using Op = ops::CrossEntropyBackward;
  static constexpr const char* name = "cross_entropy_backward.cpu";
  static constexpr uint32_t device = KB_CPU;
  static void supports(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op);
};

}  // namespace kb::cpu
