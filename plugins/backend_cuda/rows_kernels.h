// rows_kernels.h: rows added to rows, and the largest elements of a row.
#pragma once
#include "element_cuda.h"

namespace kb::cuda::element {
struct ScatterAddKernel {  // every sum in the order of its addends
  KB_CUDA_HEAD(ScatterAdd);
  static constexpr uint32_t accumulates = 1;
  static uint64_t workspace(const Call& c, const Op& o);
};
KB_CUDA_KERNEL(Topk);
}  // namespace kb::cuda::element

#define KB_CUDA_ROWS_KERNELS kernel<kb::cuda::element::ScatterAddKernel>(), kernel<kb::cuda::element::TopkKernel>()
