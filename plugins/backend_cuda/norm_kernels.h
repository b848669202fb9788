// norm_kernels.h: RMSNorm over the last axis, and its gradient. w may be wider than x.
#pragma once
#include "element_cuda.h"

namespace kb::cuda::element {
KB_CUDA_KERNEL(RmsNorm);
struct RmsNormBackwardKernel {
  KB_CUDA_HEAD(RmsNormBackward);
  static constexpr uint32_t accumulates = 2;  // dw
  static uint64_t workspace(const Call& c, const Op& o);
};
}  // namespace kb::cuda::element

#define KB_CUDA_NORM_KERNELS \
  kernel<kb::cuda::element::RmsNormKernel>(), kernel<kb::cuda::element::RmsNormBackwardKernel>()
