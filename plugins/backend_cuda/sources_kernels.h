// sources_kernels.h: tensors made from attributes alone.
#pragma once
#include "element_cuda.h"

namespace kb::cuda::element {
KB_CUDA_KERNEL(Fill);
KB_CUDA_KERNEL(Vector);
KB_CUDA_KERNEL(Iota);
KB_CUDA_KERNEL(Normal);
KB_CUDA_KERNEL(Uniform);
}  // namespace kb::cuda::element

#define KB_CUDA_SOURCE_KERNELS                                                            \
  kernel<kb::cuda::element::FillKernel>(), kernel<kb::cuda::element::VectorKernel>(),     \
      kernel<kb::cuda::element::IotaKernel>(), kernel<kb::cuda::element::NormalKernel>(), \
      kernel<kb::cuda::element::UniformKernel>()
