// A stable counting sort in up to three launches: every chunk counts its experts, a warp an expert sums those counts over the
// chunks, and every chunk places its choices. One chunk needs one launch.
#include "experts_cuda.h"

namespace kb::cuda {
namespace {

constexpr unsigned kAll = 0xffffffffu;
constexpr int kAhead = 8;  // loads of a lane that are on their way at a time

__device__ int32_t used(const SortShape& s, const int32_t* tokens) {
  return tokens ? int32_t(min(int64_t(s.n), int64_t(*tokens) * s.active)) : s.n;
}
__device__ int32_t inclusive(int32_t v, int lane) {
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int32_t below = __shfl_up_sync(kAll, v, d);
    if (lane >= d) v += below;
  }
  return v;
}
// Calls f(i, id) for a chunk's choices, 32 at a time, in order; id -1: does not count.
template <class F>
__device__ void for_chunk(const SortShape& s, const int32_t* ids, int32_t n, int32_t begin, int lane, F&& f) {
  for (int32_t at = begin + lane; at < begin + s.chunk; at += 32 * kAhead) {
    int32_t id[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) id[k] = at + 32 * k < min(n, begin + s.chunk) ? ids[at + 32 * k] : -1;
#pragma unroll
    for (int k = 0; k < kAhead; ++k) f(at + 32 * k, id[k] < s.experts ? id[k] : -1);
  }
}

__device__ void count_chunk(const SortShape& s, const int32_t* ids, int32_t n, int32_t begin, int32_t* counts,
                            int lane) {
  for (int e = lane; e < s.experts; e += 32) counts[e] = 0;
  __syncwarp();
  for_chunk(s, ids, n, begin, lane, [&](int32_t, int32_t e) {
    if (e >= 0) atomicAdd(counts + e, 1);  // integers: the order does not matter
  });
  __syncwarp();
}

// grid: chunks. counts [experts, chunks]
__global__ void __launch_bounds__(32) count(SortShape s, const int32_t* ids, const int32_t* tokens, int32_t* counts) {
  extern __shared__ int32_t mine[];  // [experts]
  count_chunk(s, ids, used(s, tokens), int32_t(blockIdx.x) * s.chunk, mine, int(threadIdx.x));
  for (int e = threadIdx.x; e < s.experts; e += 32) counts[int64_t(e) * s.chunks + blockIdx.x] = mine[e];
}

// A warp an expert: counts become what earlier chunks hold; totals [experts].
__global__ void __launch_bounds__(128) sum_chunks(int experts, int chunks, int32_t* counts, int32_t* totals) {
  const int e = int(blockIdx.x * 4 + threadIdx.x / 32), lane = threadIdx.x % 32;
  if (e >= experts) return;
  int32_t* c = counts + int64_t(e) * chunks;
  int32_t before = 0;
  for (int first = 0; first < chunks; first += 32 * kAhead) {
    int32_t v[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) v[k] = first + 32 * k + lane < chunks ? c[first + 32 * k + lane] : 0;
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int32_t up_to = inclusive(v[k], lane);
      if (first + 32 * k + lane < chunks) c[first + 32 * k + lane] = before + up_to - v[k];
      before += __shfl_sync(kAll, up_to, 31);
    }
  }
  if (lane == 0) totals[e] = before;
}

// grid: chunks. Every chunk works out where each expert begins; the padding is shared out over the chunks.
__global__ void __launch_bounds__(32)
    place(SortShape s, const int32_t* ids, const int32_t* tokens, const int32_t* counts, const int32_t* totals,
          int32_t* source, int32_t* offsets) {
  extern __shared__ int32_t shared[];
  int32_t *next = shared,
          *end = shared + s.experts;  // where the chunk's next choice goes; where an expert's choices end
  const int lane = int(threadIdx.x), chunk = int(blockIdx.x);
  const int32_t n = used(s, tokens);
  if (s.chunks == 1) count_chunk(s, ids, n, 0, next, lane);
  int32_t before = 0;
  for (int first = 0; first < s.experts; first += 32) {
    const int e = first + lane;
    const bool is = e < s.experts;
    const int32_t total = !is ? 0 : s.chunks == 1 ? next[e] : totals[e];
    const int32_t padded = (total + s.tile - 1) / s.tile * s.tile, up_to = inclusive(padded, lane);
    const int32_t begin = before + up_to - padded;
    if (is) {
      next[e] = begin + (s.chunks == 1 ? 0 : counts[int64_t(e) * s.chunks + chunk]);
      end[e] = begin + total;
      if (chunk == 0 && offsets) offsets[e] = begin;
    }
    before += __shfl_sync(kAll, up_to, 31);
  }
  if (chunk == 0 && lane == 0 && offsets) offsets[s.experts] = before;
  if (!source) return;
  if (s.chunks == 1) {  // one warp: simply all of it, before the choices come
    for (int32_t r = lane; r < s.rows; r += 32) source[r] = -1;
  } else {
    __syncwarp();
    for (int e = chunk; e < s.experts; e += s.chunks) {
      const int32_t to = min(s.rows, (end[e] + s.tile - 1) / s.tile * s.tile);
      for (int32_t r = end[e] + lane; r < to; r += 32) source[r] = -1;
    }
    for (int64_t r = int64_t(before) + chunk * 32 + lane; r < s.rows; r += s.chunks * 32) source[r] = -1;
  }
  __syncwarp();
  for_chunk(s, ids, n, chunk * s.chunk, lane, [&](int32_t i, int32_t e) {
    const unsigned same = __match_any_sync(kAll, e);
    const int32_t base = e >= 0 ? next[e] : 0, rank = __popc(same & ((1u << lane) - 1));
    __syncwarp();
    if (e >= 0 && rank == 0) next[e] = base + __popc(same);
    __syncwarp();
    if (e >= 0 && base + rank < s.rows) source[base + rank] = i;
  });
}

}  // namespace

cudaError_t expert_sort(const SortShape& s, const int32_t* ids, const int32_t* tokens, int32_t* source,
                        int32_t* offsets, void* workspace, cudaStream_t stream) {
  const auto chunks = unsigned(s.chunks);
  const size_t shared = size_t(s.experts) * 4;
  auto* counts = static_cast<int32_t*>(workspace);
  int32_t* totals = chunks == 1 ? nullptr : counts + int64_t(s.experts) * s.chunks;
  if (chunks > 1) {
    count<<<chunks, 32, shared, stream>>>(s, ids, tokens, counts);
    sum_chunks<<<unsigned((s.experts + 3) / 4), 128, 0, stream>>>(s.experts, s.chunks, counts, totals);
  }
  place<<<chunks, 32, 2 * shared, stream>>>(s, ids, tokens, counts, totals, source, offsets);
  return cudaGetLastError();
}

}  // namespace kb::cuda
