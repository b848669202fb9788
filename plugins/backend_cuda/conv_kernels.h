// conv_kernels.h: the short convolution and its gradient.
#pragma once
#include "element_cuda.h"

namespace kb::cuda::element {
KB_CUDA_KERNEL(ShortConv);
struct ShortConvBackwardKernel {
  KB_CUDA_HEAD(ShortConvBackward);
  static constexpr uint32_t accumulates = 2;  // dw
  static uint64_t workspace(const Call& c, const Op& o);
};
}  // namespace kb::cuda::element

#define KB_CUDA_CONV_KERNELS \
  kernel<kb::cuda::element::ShortConvKernel>(), kernel<kb::cuda::element::ShortConvBackwardKernel>()
