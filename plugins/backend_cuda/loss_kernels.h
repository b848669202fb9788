// loss_kernels.h: the loss over a vocabulary and its gradient.
#pragma once
#include "element_cuda.h"

namespace kb::cuda::element {
struct CrossEntropyKernel {
  KB_CUDA_HEAD(CrossEntropy);
  static uint64_t workspace(const Call& c, const Op& o);
};
KB_CUDA_KERNEL(CrossEntropyBackward);
}  // namespace kb::cuda::element

#define KB_CUDA_LOSS_KERNELS \
  kernel<kb::cuda::element::CrossEntropyKernel>(), kernel<kb::cuda::element::CrossEntropyBackwardKernel>()
