#include "kitbash/plugin.h"
#include "kernels.h"

KITBASH_PLUGIN("attention-cudnn", "0.1.0", "Apache-2.0", kernel<kb::cudnn::Attention>(),
               kernel<kb::cudnn::AttentionBackward>())
