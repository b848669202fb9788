// attention_cuda.h: the launchers of the attention kernels. T tokens, h query heads, g key heads (h a multiple of g), d and e
// the widths of keys and values; everything dense and row-major. f32 or bf16.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace kb::cuda {

inline constexpr int64_t kAttentionWidth = 256;  // most channels of a head in `attention`
inline constexpr int kAttentionTile = 64;        // rows of a tile, unless a kernel asks for more

inline size_t rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }  // parts of a workspace

struct AttentionShape {
  int64_t tokens, documents, heads, groups, key_width, value_width;
  bool causal;
  float scale;
};

// A piece of a document [begin, end), from `row` on: as many rows as a tile has, or up to the end. kind 1: rows of no
// document, which become zero.
struct AttentionTile {
  int32_t row, begin, end, kind;
};
// The tiles of a packed batch, the longest work first, made on the device from cu.
struct AttentionTiles {
  int32_t* count;       // [1]
  int32_t* next;        // [1], 0 before the launch: blocks that take tiles until none is left count here
  AttentionTile* tile;  // [count], at most `most`
  int64_t most;
};
enum class TileOrder {
  by_query,
  by_key
};  // whose work counts: keys that a query tile sees, queries that see a key tile

int64_t attention_tiles_most(int64_t tokens, int64_t documents, int rows = kAttentionTile);
size_t attention_tiles_bytes(int64_t tokens, int64_t documents);
// rows: of a tile, kAttentionTile or a multiple of it. times: every token counts as so many rows, and so do `row`, `begin`
// and `end` of the tiles; the memory must then be for tokens * times.
AttentionTiles attention_tiles(void* memory, const int32_t* cu, int64_t tokens, int64_t documents, bool causal,
                               TileOrder order, int rows, cudaStream_t stream, int times = 1);

struct AttentionForwardArgs {
  AttentionShape s;
  const void *q, *k, *v;
  const int32_t* cu;
  void* o;  // any output may be null
  float *lse, *peak;
  void* workspace;
};
size_t attention_forward_bytes(const AttentionShape& s);
float* attention_found(const AttentionForwardArgs& a);  // [tiles, heads] in the workspace
void attention_forward_bf16(const AttentionForwardArgs& a, cudaStream_t stream);
void attention_forward_f32(const AttentionForwardArgs& a, cudaStream_t stream);
// peak [heads] from found [tiles, each, heads], `count` tiles (on the device)
inline constexpr int kFoundOfTile = 8;  // the most that a kernel writes
void attention_peak(const float* found, const int32_t* count, int each, int64_t heads, float* peak,
                    cudaStream_t stream);

struct AttentionBackwardArgs {
  AttentionShape s;
  const void *q, *k, *v;
  const int32_t* cu;
  const void* o;
  const float* lse;
  const void* up;      // gradient of o
  void *dq, *dk, *dv;  // any may be null
  void* workspace;
};
size_t attention_backward_bytes(const AttentionShape& s);
float* attention_delta(const AttentionBackwardArgs& a);  // [tokens, heads] in the workspace
void attention_backward_bf16(const AttentionBackwardArgs& a, cudaStream_t stream);
void attention_backward_f32(const AttentionBackwardArgs& a, cudaStream_t stream);
// delta [tokens, heads] = sum of o * up over a head's channels
void attention_delta_bf16(const void* o, const void* up, int64_t rows, int64_t width, float* delta,
                          cudaStream_t stream);
void attention_delta_f32(const void* o, const void* up, int64_t rows, int64_t width, float* delta, cudaStream_t stream);

// k, v [slots, capacity, g, ..]; query i of document c sees past[c] + i + 1 rows of slot[c] (row c when slot is null).
struct CachedAttentionArgs {
  int64_t tokens, documents, heads, groups, key_width, value_width, slots, capacity;
  float scale;
  bool bf16;
  const void *q, *k, *v;
  const int32_t *cu, *past, *slot;
  void* o;
  void* workspace;
};
size_t cached_attention_bytes(const CachedAttentionArgs& a);
void cached_attention(const CachedAttentionArgs& a, cudaStream_t stream);

// Rows of `bytes` bytes each go behind what the caches hold.
struct CacheAppendArgs {
  int64_t tokens, documents, slots, capacity, bytes;
  const void* rows;
  const int32_t *cu, *past, *slot;
  void* cache;
};
void cache_append(const CacheAppendArgs& a, cudaStream_t stream);

}  // namespace kb::cuda
