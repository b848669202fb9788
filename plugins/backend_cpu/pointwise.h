// pointwise.h: element by element, with broadcasting; an output may lie on an operand of its own shape and type.
#pragma once
#include "element_kernel.h"

namespace kb::cpu {
KB_CPU_KERNEL(Affine);
KB_CPU_KERNEL(Exp);
KB_CPU_KERNEL(Log);
KB_CPU_KERNEL(Sigmoid);
KB_CPU_KERNEL(Tanh);
KB_CPU_KERNEL(Softplus);
KB_CPU_KERNEL(Rsqrt);
KB_CPU_KERNEL(Sqrt);
KB_CPU_KERNEL(Sin);
KB_CPU_KERNEL(Cos);
KB_CPU_KERNEL(Erf);
KB_CPU_KERNEL(Floor);
KB_CPU_KERNEL(IsFinite);
KB_CPU_KERNEL(Add);
KB_CPU_KERNEL(Sub);
KB_CPU_KERNEL(Mul);
KB_CPU_KERNEL(Div);
KB_CPU_KERNEL(Minimum);
KB_CPU_KERNEL(Maximum);
KB_CPU_KERNEL(Less);
}  // namespace kb::cpu

#define KB_POINTWISE_KERNELS                                                                              \
  kernel<kb::cpu::AffineKernel>(), kernel<kb::cpu::ExpKernel>(), kernel<kb::cpu::LogKernel>(),            \
      kernel<kb::cpu::SigmoidKernel>(), kernel<kb::cpu::TanhKernel>(), kernel<kb::cpu::SoftplusKernel>(), \
      kernel<kb::cpu::RsqrtKernel>(), kernel<kb::cpu::SqrtKernel>(), kernel<kb::cpu::SinKernel>(),        \
      kernel<kb::cpu::CosKernel>(), kernel<kb::cpu::ErfKernel>(), kernel<kb::cpu::FloorKernel>(),         \
      kernel<kb::cpu::IsFiniteKernel>(), kernel<kb::cpu::AddKernel>(), kernel<kb::cpu::SubKernel>(),      \
      kernel<kb::cpu::MulKernel>(), kernel<kb::cpu::DivKernel>(), kernel<kb::cpu::MinimumKernel>(),       \
      kernel<kb::cpu::MaximumKernel>(), kernel<kb::cpu::LessKernel>()
