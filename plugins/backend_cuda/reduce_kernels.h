// reduce_kernels.h: sums, maxima, softmax: gathered in float.
#pragma once
#include "element_cuda.h"

namespace kb::cuda::element {
struct SumKernel {
  KB_CUDA_HEAD(Sum);
  static constexpr uint32_t accumulates = 1;
  static uint64_t workspace(const Call& c, const Op& o);
};
struct SumToKernel {
  KB_CUDA_HEAD(SumTo);
  static constexpr uint32_t accumulates = 1;
  static uint64_t workspace(const Call& c, const Op& o);
};
struct SquareSumKernel {
  KB_CUDA_HEAD(SquareSum);
  static uint64_t workspace(const Call& c, const Op& o);
};
struct AmaxKernel {  // NaN counts nowhere
  KB_CUDA_HEAD(Amax);
  static uint64_t workspace(const Call& c, const Op& o);
};
KB_CUDA_KERNEL(Softmax);
}  // namespace kb::cuda::element

#define KB_CUDA_REDUCE_KERNELS                                                               \
  kernel<kb::cuda::element::SumKernel>(), kernel<kb::cuda::element::SumToKernel>(),          \
      kernel<kb::cuda::element::SquareSumKernel>(), kernel<kb::cuda::element::AmaxKernel>(), \
      kernel<kb::cuda::element::SoftmaxKernel>()
