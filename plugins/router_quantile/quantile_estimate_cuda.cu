// What is found once a step: the quantile of each expert, from its counts or from all margins, and the centred bias.
#include "quantile_cuda.h"

namespace quantile_cuda {
namespace {

// Sum over all 256 threads of a block, the same in each, in a fixed order.
template <class T>
__device__ T block_sum(T x) {
  __shared__ T sums[8];
  for (int k = 16; k >= 1; k /= 2) x += __shfl_xor_sync(~0u, x, k);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) sums[threadIdx.x >> 5] = x;
  __syncthreads();
  T all = 0;
  for (int w = 0; w < 8; ++w) all += sums[w];
  return all;
}

// now[e]: the q-th smallest needed bias of expert e = blockIdx.x, interpolated inside its bin.
__global__ void __launch_bounds__(256)
    from_counts(const int32_t* counts, const float* bias, int experts, int bins, int64_t active, double* now) {
  __shared__ float low, width;
  __shared__ int64_t share[256];
  __shared__ int chosen;
  int64_t tokens = 0;  // the same for every expert
  for (int b = threadIdx.x; b < bins; b += 256) tokens += counts[b];
  tokens = block_sum(tokens);
  if (!tokens) return;
  if (threadIdx.x == 0) {
    float lo = bias[0], hi = bias[0];
    for (int e = 1; e < experts; ++e) lo = fminf(lo, bias[e]), hi = fmaxf(hi, bias[e]);
    low = lo - 1, width = (hi - lo + 2) / float(bins);
    chosen = 256;
  }
  const int32_t* h = counts + int64_t(blockIdx.x) * bins;
  const double q = double(tokens) * double(active) / double(experts), whole = ceil(q);
  // Thread i has bins [i * piece, ..): the first thread whose share reaches `whole` looks inside.
  const int piece = (bins + 255) / 256, begin = min(bins, int(threadIdx.x) * piece), end = min(bins, begin + piece);
  int64_t mine = 0;
  for (int b = begin; b < end; ++b) mine += h[b];
  share[threadIdx.x] = mine;
  __syncthreads();
  int64_t before = 0;
  for (int i = 0; i < int(threadIdx.x); ++i) before += share[i];
  const bool last = begin < bins && end == bins;  // the rest is in the last bin
  if (begin < bins && (double(before + mine) >= whole || last)) atomicMin(&chosen, int(threadIdx.x));
  __syncthreads();
  if (int(threadIdx.x) != chosen) return;
  int b = begin;
  while (b < bins - 1 && double(before + h[b]) < whole) before += h[b++];
  const double inside = fmin(fmax((q - double(before)) / double(max(1, h[b])), 0.0), 1.0);
  now[blockIdx.x] = double(low) + (double(b) + inside) * double(width);
}

// Floats as unsigned integers in the same order.
__device__ __forceinline__ uint32_t key_of(float x) {
  const uint32_t u = __float_as_uint(x);
  return u & 0x80000000u ? ~u : u | 0x80000000u;
}
__device__ __forceinline__ float float_of(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

// now[e]: minus the (q+1)-th largest margin of expert e. A block takes kTile experts, whose margins share a sector, and finds
// the number byte after byte, from the highest, by counting those that share the bytes found so far.
constexpr int kTile = 8;
__global__ void __launch_bounds__(1024) from_margins(const float* margins, const int32_t* filled, const int32_t* total,
                                                     int experts, int64_t capacity, int64_t active, double* now) {
  __shared__ int32_t counts[kTile][256];
  __shared__ uint32_t prefix[kTile];
  __shared__ int64_t rank[kTile];
  const int64_t tokens = *filled;
  if (!tokens && !*total) return;
  const int e0 = int(blockIdx.x) * kTile, n = min(kTile, experts - e0), lane = int(threadIdx.x) % kTile;
  if (tokens > capacity || tokens != *total) {
    if (int(threadIdx.x) < n) now[e0 + threadIdx.x] = double(__uint_as_float(0x7fc00000u));
    return;
  }
  if (threadIdx.x < kTile) prefix[threadIdx.x] = 0, rank[threadIdx.x] = tokens * active / experts;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < kTile * 256; i += blockDim.x) counts[i / 256][i % 256] = 0;
    __syncthreads();
    if (lane < n) {
      const uint32_t found = prefix[lane];
      for (int64_t t = threadIdx.x / kTile; t < tokens; t += blockDim.x / kTile) {
        const uint32_t key = key_of(margins[t * experts + e0 + lane]);
        if (shift == 24 || key >> (shift + 8) == found) atomicAdd(&counts[lane][key >> shift & 255], 1);
      }
    }
    __syncthreads();
    if (int(threadIdx.x) < n) {  // from the largest byte down
      int64_t left = rank[threadIdx.x];
      int byte = 255;
      while (byte > 0 && left >= counts[threadIdx.x][byte]) left -= counts[threadIdx.x][byte--];
      rank[threadIdx.x] = left, prefix[threadIdx.x] = prefix[threadIdx.x] << 8 | uint32_t(byte);
    }
    __syncthreads();
  }
  if (int(threadIdx.x) < n) now[e0 + threadIdx.x] = -double(float_of(prefix[threadIdx.x]));
}

// bias' = centred((1 - ema) * now + ema * bias); bias itself when no token was counted. One block.
__global__ void __launch_bounds__(256) finish(const double* now, const float* bias, int experts, double ema,
                                              const int32_t* counted, int64_t counters, float* out) {
  int64_t tokens = 0;
  for (int64_t i = threadIdx.x; i < counters; i += 256) tokens += counted[i];
  tokens = block_sum(tokens);
  if (!tokens) {
    for (int e = threadIdx.x; e < experts; e += 256) out[e] = bias[e];
    return;
  }
  double mean = 0;
  for (int e = threadIdx.x; e < experts; e += 256) mean += (1 - ema) * now[e] + ema * double(bias[e]);
  mean = block_sum(mean) / double(experts);
  for (int e = threadIdx.x; e < experts; e += 256) out[e] = float((1 - ema) * now[e] + ema * double(bias[e]) - mean);
}

// Where each token's margins go, and how many there are now. One block; thread i has a run of tokens.
__global__ void __launch_bounds__(1024) place(Tokens t, int32_t* row, int32_t* filled) {
  __shared__ int32_t share[1024];
  const int64_t end = t.used ? min(t.tokens, int64_t(*t.used)) : t.tokens;
  const int64_t piece = (end + 1023) / 1024, a = min(end, threadIdx.x * piece), b = min(end, a + piece);
  int32_t mine = 0;
  for (int64_t i = a; i < b; ++i) mine += t.document[i] >= 0;
  share[threadIdx.x] = mine;
  __syncthreads();
  for (int step = 1; step < 1024; step *= 2) {  // sums of all threads up to this one
    const int32_t x = int(threadIdx.x) >= step ? share[threadIdx.x - step] : 0;
    __syncthreads();
    share[threadIdx.x] += x;
    __syncthreads();
  }
  const int32_t start = *filled;
  int32_t next = start + share[threadIdx.x] - mine;
  for (int64_t i = a; i < b; ++i) row[i] = t.document[i] < 0 ? -1 : next++;
  for (int64_t i = end + threadIdx.x; i < t.tokens; i += 1024) row[i] = -1;
  __syncthreads();
  if (threadIdx.x == 0) *filled = start + share[1023];
}
__global__ void __launch_bounds__(256)
    put_margins(Tokens t, int experts, int64_t capacity, const int32_t* row, float* margins) {
  for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < t.tokens * experts; i += int64_t(gridDim.x) * 256) {
    const int64_t token = i / experts, to = row[token];
    if (to >= 0 && to < capacity) margins[to * experts + i % experts] = t.scores[i] - t.cutoff[token];
  }
}

}  // namespace

cudaError_t estimate(const int32_t* counts, const float* bias, int64_t experts, int64_t bins, int64_t active,
                     double ema, double* now, float* out, cudaStream_t s) {
  from_counts<<<unsigned(experts), 256, 0, s>>>(counts, bias, int(experts), int(bins), active, now);
  finish<<<1, 256, 0, s>>>(now, bias, int(experts), ema, counts, bins, out);
  return cudaGetLastError();
}

cudaError_t append(const Tokens& t, int64_t experts, int64_t capacity, int32_t* row, float* margins, int32_t* filled,
                   cudaStream_t s) {
  if (!t.tokens) return cudaSuccess;
  place<<<1, 1024, 0, s>>>(t, row, filled);
  int64_t blocks = (t.tokens * experts + 255) / 256;
  if (blocks > 1056) blocks = 1056;
  put_margins<<<unsigned(blocks), 256, 0, s>>>(t, int(experts), capacity, row, margins);
  return cudaGetLastError();
}

cudaError_t exact(const float* margins, const int32_t* filled, const int32_t* total, const float* bias, int64_t experts,
                  int64_t capacity, int64_t active, double ema, double* now, float* out, cudaStream_t s) {
  from_margins<<<unsigned((experts + kTile - 1) / kTile), 1024, 0, s>>>(margins, filled, total, int(experts), capacity,
                                                                        active, now);
  finish<<<1, 256, 0, s>>>(now, bias, int(experts), ema, total, 1, out);
  return cudaGetLastError();
}

}  // namespace quantile_cuda
