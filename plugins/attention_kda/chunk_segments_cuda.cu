// chunk_segments_cuda.cu: cuts documents into segments, and puts together what each does to the state (chunk_cuda.h).
#include "chunk_segments_cuda.h"
#include "chunk_stage_cuda.cuh"

namespace kda::cuda {
namespace {

constexpr int kThreads = 256;

__device__ int32_t chunks_of(const Problem& p, int64_t d) {
  return max(0, (p.cu[d + 1] - p.cu[d] + kChunk - 1) / kChunk);
}

// Sum over the block, for everyone.
__device__ int32_t total(int32_t x, int32_t* shared) {
  __syncthreads();
  if (threadIdx.x == 0) *shared = 0;
  __syncthreads();
  atomicAdd(shared, x);
  __syncthreads();
  return *shared;
}

// One block. Segments have at most `length` chunks, the least (and kLeast) with which they are no more than the budget; where
// there are more documents than that, none is cut.
__global__ void __launch_bounds__(kThreads) cut(Problem p, Segments s, int32_t budget) {
  __shared__ int32_t shared, used_at, empty_at;
  const auto segments = [&](int32_t length) {
    int32_t n = 0;
    for (int64_t d = threadIdx.x; d < p.documents; d += kThreads) n += (chunks_of(p, d) + length - 1) / length;
    return total(n, &shared);
  };
  int32_t low = kLeast, high = int32_t(p.tokens / kChunk + 1);  // never cuts
  const int32_t used = segments(high);
  if (used >= budget) low = high;
  while (low < high) {
    const int32_t middle = (low + high) / 2;
    if (segments(middle) <= budget)
      high = middle;
    else
      low = middle + 1;
  }
  const int32_t length = low, before_empty = segments(length);
  if (threadIdx.x == 0) used_at = 0, empty_at = before_empty, *s.count = before_empty + int32_t(p.documents) - used;
  __syncthreads();
  // By one thread, in the order of the documents; most have no tokens, and few are cut.
  for (int64_t base = 0; base < p.documents; base += kThreads) {
    const int64_t d = base + threadIdx.x;
    const int32_t n = d < p.documents ? chunks_of(p, d) : 0, of = (n + length - 1) / length;
    int32_t at = 0;
    for (int turn = 0; turn < kThreads / 32; ++turn) {  // a warp at a time
      if (threadIdx.x / 32 == turn) {
        const int lane = threadIdx.x & 31;
        const bool empty = d < p.documents && of == 0;
        int32_t x = of, e = empty;
        for (int i = 1; i < 32; i *= 2) {
          const int32_t y = __shfl_up_sync(~0u, x, i), z = __shfl_up_sync(~0u, e, i);
          if (lane >= i) x += y, e += z;
        }
        at = empty ? empty_at + e - 1 : used_at + x - of;
        __syncwarp();
        if (lane == 31) used_at += x, empty_at += e;
      }
      __syncthreads();
    }
    if (d >= p.documents) continue;
    const int32_t begin = p.cu[d], end = p.cu[d + 1], first = begin / kChunk + int32_t(d);
    if (of == 0) s.at[at] = {int32_t(d), 0, 1, begin, begin, first};
    for (int32_t i = 0; i < of; ++i) {
      const int32_t from = int32_t(int64_t(n) * i / of), to = int32_t(int64_t(n) * (i + 1) / of);
      s.at[at + i] = {int32_t(d), i, of, begin + from * kChunk, min(end, begin + to * kChunk), first + from};
    }
  }
}

// A block has one cut document and head, and sixteen columns of the state, which it carries from segment to segment; the next
// segment's M is on its way meanwhile.
constexpr int kColumns = 16;
template <int D>
struct Fold {
  static constexpr int kRows = D / (kThreads / kColumns);    // of a thread
  static constexpr int kMapRow = D + 4, kMap = D * kMapRow;  // floats: rows start in different banks
  static constexpr int kBytes = (2 * kMap + D * kColumns) * int(sizeof(float));
};
template <int D, bool Reverse>
__global__ void __launch_bounds__(kThreads, 1) put_together_kernel(Problem p, Segments s) {
  using F = Fold<D>;
  constexpr int kRows = F::kRows;
  extern __shared__ __align__(16) float memory[];
  float* carried = memory + 2 * F::kMap;  // [D, kColumns]
  const int64_t first = blockIdx.x / p.heads, h = blockIdx.x % p.heads;
  if (first >= *s.count || s.at[first].place > 0 || s.at[first].of <= 2) return;
  const int of = s.at[first].of, c = threadIdx.x % kColumns, column = blockIdx.y * kColumns + c,
            row = int(threadIdx.x) / kColumns * kRows;
  const auto at = [&](int step) { return ((first + (Reverse ? of - 1 - step : step)) * p.heads + h) * D * D; };
  const auto copy_map = [&](int step) {
    if (step < of - 1)
      for (int i = threadIdx.x; i < D * D / 4; i += kThreads)
        copy16(memory + step % 2 * F::kMap + i * 4 / D * F::kMapRow + i * 4 % D, s.maps + at(step) + i * 4, true);
    copy_commit();
  };
  float x[kRows];
  copy_map(1);
#pragma unroll
  for (int r = 0; r < kRows; ++r) x[r] = s.ends[at(0) + (row + r) * D + column];
  for (int step = 1; step < of - 1; ++step) {
    copy_map(step + 1);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      carried[(row + r) * kColumns + c] = x[r];
      x[r] = s.ends[at(step) + (row + r) * D + column];
    }
    copy_wait<1>();
    __syncthreads();
    const float* m = memory + step % 2 * F::kMap;
#pragma unroll 4
    for (int j = 0; j < D; j += 4) {
      float y[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) y[i] = carried[(j + i) * kColumns + c];
      if constexpr (Reverse) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int r = 0; r < kRows; r += 4) {
            const float4 a = *reinterpret_cast<const float4*>(m + (j + i) * F::kMapRow + row + r);
            x[r] += a.x * y[i], x[r + 1] += a.y * y[i], x[r + 2] += a.z * y[i], x[r + 3] += a.w * y[i];
          }
      } else {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const float4 a = *reinterpret_cast<const float4*>(m + (row + r) * F::kMapRow + j);
          x[r] += a.x * y[0] + a.y * y[1] + a.z * y[2] + a.w * y[3];
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) s.ends[at(step) + (row + r) * D + column] = x[r];
    __syncthreads();
  }
}

template <int D, bool Reverse>
void put_together_of(const Problem& p, const Segments& s, cudaStream_t stream) {
  const dim3 blocks(unsigned(segment_budget(p) * p.heads), D / kColumns);
  cudaFuncSetAttribute(put_together_kernel<D, Reverse>, cudaFuncAttributeMaxDynamicSharedMemorySize, Fold<D>::kBytes);
  put_together_kernel<D, Reverse><<<blocks, kThreads, Fold<D>::kBytes, stream>>>(p, s);
}
template <bool Reverse>
void put_together_of(const Problem& p, const Segments& s, cudaStream_t stream) {
  if (p.K == 64)
    put_together_of<64, Reverse>(p, s, stream);
  else
    put_together_of<128, Reverse>(p, s, stream);
}

int64_t rounded(int64_t bytes) { return (bytes + 255) / 256 * 256; }
int64_t table_bytes(const Problem& p) {
  return rounded((segment_budget(p) + p.documents) * int64_t(sizeof(Segment)) + int64_t(sizeof(int32_t)));
}
int64_t state_bytes(const Problem& p) { return segment_budget(p) * p.heads * p.K * p.V * int64_t(sizeof(float)); }

}  // namespace

int64_t segment_bytes(const Problem& p) { return segment_budget(p) ? table_bytes(p) + 2 * state_bytes(p) : 0; }
Segments segments_in(const Problem& p, void* memory) {
  if (!segment_budget(p)) return {};
  char* at = static_cast<char*>(memory);
  Segments s{};
  s.at = reinterpret_cast<Segment*>(at);
  s.count = reinterpret_cast<int32_t*>(s.at + segment_budget(p) + p.documents);
  s.ends = reinterpret_cast<float*>(at + table_bytes(p));
  s.maps = reinterpret_cast<float*>(at + table_bytes(p) + state_bytes(p));
  return s;
}

cudaError_t cut_documents(const Problem& p, const Segments& s, cudaStream_t stream) {
  cut<<<1, kThreads, 0, stream>>>(p, s, int32_t(segment_budget(p)));
  return cudaGetLastError();
}
cudaError_t put_together(const Problem& p, const Segments& s, bool reverse, cudaStream_t stream) {
  if (reverse)
    put_together_of<true>(p, s, stream);
  else
    put_together_of<false>(p, s, stream);
  return cudaGetLastError();
}

}  // namespace kda::cuda
