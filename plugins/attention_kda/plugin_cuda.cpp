// plugin_cuda.cpp: the plugin of the CUDA kernels of `kda` and `kda_backward`.
#include "kernels_cuda.h"
#include "kitbash/plugin.h"

KITBASH_PLUGIN("attention-kda-cuda", "0.1.0", "Apache-2.0", kernel<kda::cuda::Recurrent>(), kernel<kda::cuda::Chunk>(),
               kernel<kda::cuda::ChunkRescaled>(), kernel<kda::cuda::RecurrentBackward>(),
               kernel<kda::cuda::ChunkBackward>(), kernel<kda::cuda::ChunkRescaledBackward>())
