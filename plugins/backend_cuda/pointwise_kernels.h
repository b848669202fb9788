// pointwise_kernels.h: element by element, with broadcasting, in f32 and bf16 (a mixture gives f32); add, sub, mul,
// minimum, maximum, less and affine in i32 too.
#pragma once
#include "element_cuda.h"

namespace kb::cuda::element {
KB_CUDA_KERNEL(Affine);
KB_CUDA_KERNEL(Exp);
KB_CUDA_KERNEL(Log);
KB_CUDA_KERNEL(Sigmoid);
KB_CUDA_KERNEL(Tanh);
KB_CUDA_KERNEL(Softplus);
KB_CUDA_KERNEL(Rsqrt);
KB_CUDA_KERNEL(Sqrt);
KB_CUDA_KERNEL(Sin);
KB_CUDA_KERNEL(Cos);
KB_CUDA_KERNEL(Erf);
KB_CUDA_KERNEL(Floor);
KB_CUDA_KERNEL(IsFinite);
KB_CUDA_KERNEL(Add);
KB_CUDA_KERNEL(Sub);
KB_CUDA_KERNEL(Mul);
KB_CUDA_KERNEL(Div);
KB_CUDA_KERNEL(Minimum);
KB_CUDA_KERNEL(Maximum);
KB_CUDA_KERNEL(Less);
KB_CUDA_KERNEL(Cast);
}  // namespace kb::cuda::element

#define KB_CUDA_POINTWISE_KERNELS                                                           \
  kernel<kb::cuda::element::AffineKernel>(), kernel<kb::cuda::element::ExpKernel>(),        \
      kernel<kb::cuda::element::LogKernel>(), kernel<kb::cuda::element::SigmoidKernel>(),   \
      kernel<kb::cuda::element::TanhKernel>(), kernel<kb::cuda::element::SoftplusKernel>(), \
      kernel<kb::cuda::element::RsqrtKernel>(), kernel<kb::cuda::element::SqrtKernel>(),    \
      kernel<kb::cuda::element::SinKernel>(), kernel<kb::cuda::element::CosKernel>(),       \
      kernel<kb::cuda::element::ErfKernel>(), kernel<kb::cuda::element::FloorKernel>(),     \
      kernel<kb::cuda::element::IsFiniteKernel>(), kernel<kb::cuda::element::AddKernel>(),  \
      kernel<kb::cuda::element::SubKernel>(), kernel<kb::cuda::element::MulKernel>(),       \
      kernel<kb::cuda::element::DivKernel>(), kernel<kb::cuda::element::MinimumKernel>(),   \
      kernel<kb::cuda::element::MaximumKernel>(), kernel<kb::cuda::element::LessKernel>(),  \
      kernel<kb::cuda::element::CastKernel>()
