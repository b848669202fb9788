// The sibling library of kernels that is loaded where there is a CUDA device.
#include "quantile_cuda_kernels.h"

KITBASH_PLUGIN("router-quantile-cuda", "0.1.0", "Apache-2.0", kernel<QuantileCountCuda>(),
               kernel<QuantileEstimateCuda>(), kernel<QuantileAppendCuda>(), kernel<QuantileExactCuda>(),
               kernel<ExpertLoadCuda>())
