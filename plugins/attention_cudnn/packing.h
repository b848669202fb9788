// packing.h: the small kernels around a cuDNN graph: where documents lie, rows of no document, lse, and the largest
// logit of a head.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace kb::cudnn {

// cu [documents + 1] as cuDNN wants it: lengths, and offsets in elements of a tensor whose rows have `width` elements.
// Borders out of order or out of range are clamped: such a batch gives wrong numbers, never a wild address.
struct Offsets {
  int64_t* at;  // [documents + 1]
  int64_t width;
};
struct Packing {
  const int32_t* cu;
  int64_t tokens, documents;
  int32_t* length;     // [documents]
  Offsets offsets[5];  // of q, k, v, o and rows
};
void pack(const Packing& p, cudaStream_t stream);

// Zeroes the rows [tokens, bytes] of no document; bytes a multiple of 4.
void clear_outside(const Packing& p, void* rows, int64_t bytes, cudaStream_t stream);

// lse [tokens, heads] = most + log(total), zero in rows of no document.
void log_sum(const Packing& p, const float* most, const float* total, int64_t heads, float* lse, cudaStream_t stream);

inline constexpr int64_t kMostHeads = 4096;
// peak [heads] = the largest of most [tokens, heads] over the rows of documents; -inf where there is none.
void highest(const Packing& p, const float* most, int64_t heads, float* peak, cudaStream_t stream);

}  // namespace kb::cudnn
