// backend.cpp: the CUDA backend as a plugin: its kernels, and the table that opens the device.
#include <cstring>

#include "attention_kernels.h"
#include "device.h"
#include "elements_kernels.h"
#include "fused_kernels.h"
#include "kitbash/plugin.h"
#include "products_kernels.h"

namespace {
const void* extension(const char* name) {
  return std::strcmp(name, "kitbash.backend") == 0 ? kb::cuda::backend_table() : nullptr;
}
}  // namespace

KITBASH_PLUGIN_WITH(extension, "backend-cuda", "0.1.0", "Apache-2.0", KB_CUDA_ELEMENT_KERNELS, KB_CUDA_PRODUCT_KERNELS,
                    KB_CUDA_ATTENTION_KERNELS, KB_CUDA_FUSED_KERNELS)
