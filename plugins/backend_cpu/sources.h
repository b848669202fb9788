// sources.h: tensors made from attributes alone. Random ones depend on seed and element only, not on threads or type.
#pragma once
#include "element_kernel.h"

namespace kb::cpu {
KB_CPU_KERNEL_ANY(Fill);
KB_CPU_KERNEL_ANY(Vector);
KB_CPU_KERNEL_ANY(Iota);
KB_CPU_KERNEL_ANY(Normal);
KB_CPU_KERNEL_ANY(Uniform);
}  // namespace kb::cpu

#define KB_SOURCE_KERNELS                                                                        \
  kernel<kb::cpu::FillKernel>(), kernel<kb::cpu::VectorKernel>(), kernel<kb::cpu::IotaKernel>(), \
      kernel<kb::cpu::NormalKernel>(), kernel<kb::cpu::UniformKernel>()
