// What is counted in every micro-batch: needed biases by bin, and assignments by expert. Each score is read once; a block
// counts a few experts of a share of the tokens in shared memory and adds what it has to the totals.
#include "quantile_cuda.h"

namespace quantile_cuda {
namespace {

__device__ __forceinline__ int64_t in_use(const int32_t* used, int64_t tokens) {
  return used ? min(tokens, int64_t(*used)) : tokens;
}

// Smallest and largest of bias, by all threads.
__device__ float2 bias_range(const float* bias, int64_t experts) {
  __shared__ float lo[32], hi[32];
  float a = INFINITY, b = -INFINITY;
  for (int64_t e = threadIdx.x; e < experts; e += blockDim.x) a = fminf(a, bias[e]), b = fmaxf(b, bias[e]);
  for (int k = 16; k >= 1; k /= 2) a = fminf(a, __shfl_xor_sync(~0u, a, k)), b = fmaxf(b, __shfl_xor_sync(~0u, b, k));
  if ((threadIdx.x & 31) == 0) lo[threadIdx.x >> 5] = a, hi[threadIdx.x >> 5] = b;
  __syncthreads();
  a = lo[0], b = hi[0];
  for (int w = 1; w < int(blockDim.x >> 5); ++w) a = fminf(a, lo[w]), b = fmaxf(b, hi[w]);
  return {a, b};
}

// tile: experts of a block (blockIdx.x); its shared counts are [tile, bins], or none where they do not fit.
template <bool kShared>
__global__ void __launch_bounds__(512)
    count_kernel(Tokens t, const float* bias, int experts, int bins, int tile, int32_t* counts) {
  extern __shared__ int32_t mine[];
  const float2 range = bias_range(bias, experts);
  const float low = range.x - 1, width = (range.y - range.x + 2) / float(bins), scale = 1 / width,
              last = float(bins - 1);
  const int e0 = int(blockIdx.x) * tile, n = min(tile, experts - e0);
  if (kShared) {
    for (int i = threadIdx.x; i < n * bins; i += blockDim.x) mine[i] = 0;
    __syncthreads();
  }
  int32_t* into = kShared ? mine : counts + int64_t(e0) * bins;
  const int64_t end = in_use(t.used, t.tokens);
  const int lane = int(threadIdx.x) % tile, rows = int(blockDim.x) / tile;  // a thread keeps its expert
  if (lane < n && int(threadIdx.x) < rows * tile)
    for (int64_t r = int64_t(blockIdx.y) * rows + threadIdx.x / tile; r < end; r += int64_t(gridDim.y) * rows) {
      if (t.document[r] < 0) continue;
      // cutoff - score first: it is exactly 0 for the expert at the cutoff, which no rounding may move over an edge.
      float x = __fmul_rn(__fsub_rn(__fsub_rn(t.cutoff[r], t.scores[r * experts + e0 + lane]), low), scale);
      x = x > 0 ? x : 0.f;
      atomicAdd(into + int64_t(lane) * bins + int(x < last ? x : last), 1);
    }
  if (!kShared) return;
  __syncthreads();
  for (int i = threadIdx.x; i < n * bins; i += blockDim.x)
    if (mine[i]) atomicAdd(counts + int64_t(e0) * bins + i, mine[i]);
}

constexpr int kLoadExperts = 8192;  // that are counted in shared memory
__global__ void __launch_bounds__(512) load_kernel(const int32_t* ids, const int32_t* document, const int32_t* used,
                                                   int64_t tokens, int active, int experts, int32_t* load) {
  extern __shared__ int32_t mine[];
  const bool shared = experts <= kLoadExperts;
  if (shared) {
    for (int e = threadIdx.x; e < experts; e += blockDim.x) mine[e] = 0;
    __syncthreads();
  }
  const int64_t end = in_use(used, tokens) * active;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < end; i += int64_t(gridDim.x) * blockDim.x) {
    const int32_t e = ids[i];
    if (document[i / active] >= 0 && e >= 0 && e < experts) atomicAdd((shared ? mine : load) + e, 1);
  }
  if (!shared) return;
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += blockDim.x)
    if (mine[e]) atomicAdd(load + e, mine[e]);
}

}  // namespace

cudaError_t count(const Tokens& t, const float* bias, int64_t experts, int64_t bins, int32_t* counts, cudaStream_t s) {
  if (!t.tokens) return cudaSuccess;
  constexpr int64_t kMost = 96 * 1024;  // bytes of a block's counts: two blocks on a multiprocessor
  int tile = 16;                        // 64 bytes of a row of scores
  while (tile > 1 && tile * bins * 4 > kMost) tile /= 2;
  const bool shared = tile * bins * 4 <= kMost;
  if (!shared) tile = 16;
  const int64_t tiles = (experts + tile - 1) / tile, rows = 512 / tile;
  // Enough blocks for the card, each with tokens enough to be worth its counts.
  int64_t shares = (264 + tiles - 1) / tiles;
  const int64_t most = (t.tokens + rows * 8 - 1) / (rows * 8);
  shares = shares > most ? most : shares;
  const dim3 grid{unsigned(tiles), unsigned(shares)};
  if (shared) {
    static const cudaError_t raised =
        cudaFuncSetAttribute(count_kernel<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, int(kMost));
    if (raised != cudaSuccess) return raised;
    count_kernel<true>
        <<<grid, 512, size_t(tile) * size_t(bins) * 4, s>>>(t, bias, int(experts), int(bins), tile, counts);
  } else {
    count_kernel<false><<<grid, 512, 0, s>>>(t, bias, int(experts), int(bins), tile, counts);
  }
  return cudaGetLastError();
}

cudaError_t load(const int32_t* ids, const int32_t* document, const int32_t* used, int64_t tokens, int64_t active,
                 int64_t experts, int32_t* load, cudaStream_t s) {
  if (!tokens || !active) return cudaSuccess;
  int64_t blocks = (tokens * active + 512 * 8 - 1) / (512 * 8);
  if (blocks > 132) blocks = 132;
  const size_t shared = experts <= kLoadExperts ? size_t(experts) * 4 : 0;
  load_kernel<<<unsigned(blocks), 512, shared, s>>>(ids, document, used, tokens, int(active), int(experts), load);
  return cudaGetLastError();
}

}  // namespace quantile_cuda
