// attention_wgmma.h: the launchers of the attention kernels for sm_90a: bf16, widths 192/128, 128/128 and 64/64.
#pragma once
#include <cuda.h>

#include "attention_cuda.h"

namespace kb::cuda {

// Maps of [tokens, heads * width] in boxes of 64 columns by 64 rows with the 128-byte swizzle; by 128 rows for k and v of the
// forward pass. up: of the backward pass only.
struct AttentionMaps {
  CUtensorMap q, k, v, up;
};

bool attention_wgmma_takes(int64_t key_width, int64_t value_width);
size_t attention_backward_wgmma_bytes(const AttentionShape& s);
void attention_backward_wgmma(const AttentionBackwardArgs& a, const AttentionMaps& maps, cudaStream_t stream);
void attention_forward_wgmma(const AttentionForwardArgs& a, const AttentionMaps& maps, cudaStream_t stream);

}  // namespace kb::cuda
