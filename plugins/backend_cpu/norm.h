// norm.h: RMSNorm over the last axis, and its gradient (../../core/README.md, "Base ops"). x and w have one type on the
// CPU.
#pragma once
#include "element_kernel.h"

namespace kb::cpu {
KB_CPU_KERNEL(RmsNorm);
struct RmsNormBackwardKernel {
  KB_CPU_HEAD(RmsNormBackward);
  static constexpr uint32_t accumulates = 2;  // dw
  static void supports(const Call& c, const Op&) { refuse_bf16(c); }
  static uint64_t workspace(const Call& c, const Op& o);
};
}  // namespace kb::cpu

#define KB_NORM_KERNELS kernel<kb::cpu::RmsNormKernel>(), kernel<kb::cpu::RmsNormBackwardKernel>()
