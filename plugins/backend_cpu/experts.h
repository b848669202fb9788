// experts.h: tokens to experts and back. source [rows]: flat index into ids [tokens, active], or -1 for padding.
#pragma once
#include "element_kernel.h"

namespace kb::cpu {
struct ExpertSortKernel {
  KB_CPU_HEAD(ExpertSort);
  static uint64_t workspace(const Call& c, const Op& o);
};
KB_CPU_KERNEL_ANY(Dispatch);
struct CombineKernel {  // a token's rows are added in rising order of row
  KB_CPU_HEAD(Combine);
  static void supports(const Call& c, const Op&) { refuse_bf16(c); }
  static uint64_t workspace(const Call& c, const Op& o);
};
}  // namespace kb::cpu

#define KB_EXPERT_KERNELS \
  kernel<kb::cpu::ExpertSortKernel>(), kernel<kb::cpu::DispatchKernel>(), kernel<kb::cpu::CombineKernel>()
