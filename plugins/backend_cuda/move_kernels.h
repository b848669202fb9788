// move_kernels.h: kernels that only move elements, of any type. Reshape and detach run as copies where the host does
// not elide them; all_reduce over one device is a copy.
#pragma once
#include "element_cuda.h"

namespace kb::cuda::element {
KB_CUDA_KERNEL(Reshape);
KB_CUDA_KERNEL(Permute);
KB_CUDA_KERNEL(Slice);
KB_CUDA_KERNEL(Unslice);
KB_CUDA_KERNEL(Concat);
KB_CUDA_KERNEL(Broadcast);
KB_CUDA_KERNEL(Copy);
KB_CUDA_KERNEL(Detach);
KB_CUDA_KERNEL(AllReduce);
KB_CUDA_KERNEL(Gather);
KB_CUDA_KERNEL(Take);
KB_CUDA_KERNEL(Untake);
}  // namespace kb::cuda::element

#define KB_CUDA_MOVE_KERNELS                                                                   \
  kernel<kb::cuda::element::ReshapeKernel>(), kernel<kb::cuda::element::PermuteKernel>(),      \
      kernel<kb::cuda::element::SliceKernel>(), kernel<kb::cuda::element::UnsliceKernel>(),    \
      kernel<kb::cuda::element::ConcatKernel>(), kernel<kb::cuda::element::BroadcastKernel>(), \
      kernel<kb::cuda::element::CopyKernel>(), kernel<kb::cuda::element::DetachKernel>(),      \
      kernel<kb::cuda::element::AllReduceKernel>(), kernel<kb::cuda::element::GatherKernel>(), \
      kernel<kb::cuda::element::TakeKernel>(), kernel<kb::cuda::element::UntakeKernel>()
