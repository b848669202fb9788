// rows.h: whole rows picked by index, elements of a row picked by index, the largest elements of a row.
#pragma once
#include "element_kernel.h"

namespace kb::cpu {
KB_CPU_KERNEL_ANY(Gather);
struct ScatterAddKernel {  // rows are added in their order, whatever the threads
  KB_CPU_HEAD(ScatterAdd);
  static constexpr uint32_t accumulates = 1;
  static void supports(const Call& c, const Op&) { refuse_bf16(c); }
};
KB_CPU_KERNEL_ANY(Take);
KB_CPU_KERNEL_ANY(Untake);
KB_CPU_KERNEL(Topk);  // NaN is smaller than every number

// Each of `n` row numbers must be -1 (when allowed) or below `rows`; else an error that names the first wrong one.
void check_rows(const char* what, const int32_t* at, int64_t n, int64_t rows, bool absent_allowed);
}  // namespace kb::cpu

#define KB_ROWS_KERNELS                                                                                \
  kernel<kb::cpu::GatherKernel>(), kernel<kb::cpu::ScatterAddKernel>(), kernel<kb::cpu::TakeKernel>(), \
      kernel<kb::cpu::UntakeKernel>(), kernel<kb::cpu::TopkKernel>()
