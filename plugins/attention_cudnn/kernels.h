// kernels.h: attention and its gradients by cuDNN as kernels of the base ops. README.md says when they are chosen.
#pragma once
#include "kitbash/op.h"
#include "kitbash/ops.h"

namespace kb::cudnn {

struct Attention {
  using Op = ops::Attention;
  static constexpr const char* name = "attention.cudnn";
  static constexpr uint32_t device = KB_CUDA, arch_min = 90, arch_max = 90;
  static constexpr int32_t priority = 3;  // after our own of few widths, before our own of all
  static void supports(const Call& c, const Op& op);
  static uint64_t workspace(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op);
};
struct AttentionBackward {
  using Op = ops::AttentionBackward;
  static constexpr const char* name = "attention_backward.cudnn";
  static constexpr uint32_t device = KB_CUDA, arch_min = 90, arch_max = 90;
  static constexpr int32_t priority = 3;  // after our own of few widths, before our own of all
  static void supports(const Call& c, const Op& op);
  static uint64_t workspace(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op);
};

}  // namespace kb::cudnn
