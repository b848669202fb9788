// The sibling library of kernels that is loaded where there is a CUDA device.
#include "depth_mix_cuda_kernels.h"

KITBASH_PLUGIN("residual-block-attnres-cuda", "0.1.0", "Apache-2.0", kernel<DepthMixCuda>(),
               kernel<DepthMixBackwardCuda>())
