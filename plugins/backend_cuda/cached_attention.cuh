// cached_attention.cuh: shared by the kernels that look back over a cache.
#pragma once
#include "attention_device.cuh"

namespace kb::cuda {

inline constexpr int kCachedWidth = 576;  // most channels in cached_attention_bf16()

// The document of a row, or -1.
__device__ inline int document_of(const int32_t* cu, int documents, int row) {
  if (documents < 1 || row < cu[0] || row >= cu[documents]) return -1;
  int low = 0, high = documents - 1;  // the last with cu <= row
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (cu[middle] <= row)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

struct CachePieces {
  int64_t count, keys;  // pieces of a cache, keys of a piece
};
// blocks: of one piece; keys of a piece are a multiple of `unit`. From shapes alone, so that sums keep their order.
CachePieces cache_pieces(int64_t blocks, int64_t capacity, int64_t unit);
// Pieces of a row meet: (top, sum) [tokens, heads, pieces], then [tokens, heads, pieces, value_width] floats.
size_t cache_parts_bytes(const CachedAttentionArgs& a, const CachePieces& n);
void cache_parts_meet(const CachedAttentionArgs& a, const CachePieces& n, const float2* part_of, const float* part,
                      cudaStream_t stream);

size_t cached_attention_bf16_bytes(const CachedAttentionArgs& a);
void cached_attention_bf16(const CachedAttentionArgs& a, cudaStream_t stream);

}  // namespace kb::cuda
