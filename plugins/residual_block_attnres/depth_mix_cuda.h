// depth_mix_cuda.h: launchers of the CUDA kernels of depth_mix. All pointers are device memory; nothing waits.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace depth_mix_cuda {

inline constexpr int kMost = 14;              // sources
inline constexpr int kMultiprocessors = 132;  // grids are cut for so many, whatever the card has

struct Problem {
  const void* v[kMost];  // sources [tokens, d]
  int n;
  int64_t tokens, d;
  const float *norm, *query;  // [d]
  float eps;
  const int32_t* used;  // how many of the tokens are in use; null: all
};
struct Forward : Problem {
  void* h;   // [tokens, d]; null: not wanted
  float* p;  // [tokens, n]; null: not wanted
};
struct Backward : Problem {
  const void* dh;         // [tokens, d]
  void* dv[kMost];        // null: not wanted
  uint32_t add;           // bit i: to dv[i]
  float *dnorm, *dquery;  // [d]; null: not wanted
  bool add_norm, add_query;
  float* partial;  // [blocks, d]: the sum of each block
};

// How a kernel is laid out.
//   direct   narrow bf16 rows: 1, 2 or 4 warps work on a token, which they load into registers; a block of four warps
//   ring     wide rows: a block works on one token, whose rows one more warp fetches into a ring in shared memory
//   generic  any width and alignment
// In the first two every thread owns up to `pieces` pieces of 16 bytes of a row.
struct Layout {
  enum Way { generic, ring, direct } way;
  int warps;  // that compute a token
  int pieces;
  int slots;            // of the ring
  int threads, blocks;  // blocks: at most, for the whole card
  int64_t shared;       // bytes
};
inline constexpr int kRingWarps = 15;  // at most; with the filling warp four a scheduler, which have 128 registers
Layout forward_layout(int n, int64_t d, bool bf16);
Layout backward_layout(int n, int64_t d, bool bf16);

// The kernels of each way; l.blocks becomes how many were launched.
cudaError_t forward_direct(const Forward& a, Layout& l, cudaStream_t stream);
cudaError_t backward_direct(const Backward& a, Layout& l, cudaStream_t stream);

cudaError_t forward(const Forward& a, bool bf16, cudaStream_t stream);
cudaError_t backward(const Backward& a, bool bf16, cudaStream_t stream);

}  // namespace depth_mix_cuda
