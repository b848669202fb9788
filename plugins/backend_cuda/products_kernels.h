// products_kernels.h: declares the kernel structs of this group and lists them for backend.cpp.
#pragma once
#include "experts.h"
#include "grouped.h"
#include "matmul.h"

// Comma-separated kernel<kb::cuda::X>(), as in plugins/backend_cpu/kernels.h.
#define KB_CUDA_PRODUCT_KERNELS                                                                                      \
  kernel<kb::cuda::Matmul>(), kernel<kb::cuda::MatmulMixed>(), kernel<kb::cuda::ExpertSortKernel>(),                 \
      kernel<kb::cuda::DispatchKernel>(), kernel<kb::cuda::CombineKernel>(), kernel<kb::cuda::GroupedLinearWgmma>(), \
      kernel<kb::cuda::GroupedLinearSimt>(), kernel<kb::cuda::GroupedOuterWgmma>(),                                  \
      kernel<kb::cuda::GroupedOuterSimt>()
