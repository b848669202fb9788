// The sibling library of kernels that is loaded where there is a CUDA device.
#include "adamw_cuda_kernels.h"

KITBASH_PLUGIN("optimizer-adamw-cuda", "0.1.0", "Apache-2.0", kernel<AdamwCuda>())
