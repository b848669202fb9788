// shape.h: kernels that only move elements, of any type. Reshape and detach run as copies where the host does not elide
// them.
#pragma once
#include "element_kernel.h"

namespace kb::cpu {
KB_CPU_KERNEL_ANY(Reshape);
KB_CPU_KERNEL_ANY(Permute);
KB_CPU_KERNEL_ANY(Slice);
KB_CPU_KERNEL_ANY(Unslice);
KB_CPU_KERNEL_ANY(Concat);
KB_CPU_KERNEL_ANY(Broadcast);
KB_CPU_KERNEL_ANY(Copy);
KB_CPU_KERNEL_ANY(Detach);
KB_CPU_KERNEL_ANY(AllReduce);  // over one rank: every sum and maximum is the operand

// f.template operator()<T>() with an unsigned T of the type's width.
template <class F>
void bits(uint32_t dtype, F&& f) {
  switch (width_of(dtype)) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    default:
      return f.template operator()<uint64_t>();
  }
}
}  // namespace kb::cpu

#define KB_SHAPE_KERNELS                                                                                     \
  kernel<kb::cpu::ReshapeKernel>(), kernel<kb::cpu::PermuteKernel>(), kernel<kb::cpu::SliceKernel>(),        \
      kernel<kb::cpu::UnsliceKernel>(), kernel<kb::cpu::ConcatKernel>(), kernel<kb::cpu::BroadcastKernel>(), \
      kernel<kb::cpu::CopyKernel>(), kernel<kb::cpu::DetachKernel>(), kernel<kb::cpu::AllReduceKernel>()
