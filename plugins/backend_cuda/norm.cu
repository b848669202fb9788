// norm.cu: a group of threads (row_plan.cuh) holds a row in registers, so that x (and dy) are read once. Blocks stay
// for many rows: the weights are read once, and the next row is on its way while this one is summed. In the backward
// a thread always has the same columns: it adds up dw over the rows of its group in registers, the groups of a block
// meet in shared memory, and the blocks' sums go to `part`.
#include "element.cuh"
#include "norm_cuda.h"
#include "row_plan.cuh"

namespace kb::cuda::element {
namespace {

__device__ inline float group_sum(float v, int threads, float* room) {
  return threads > 32 ? block_sum(v, room) : warp_sum(v, threads);
}

template <class T, int V, int P, int kBlock>  // kBlock: threads of a block at most
__global__ void __launch_bounds__(kBlock)
    forward(const T* x, Floats w, T* y, int64_t rows, int n, int threads, float eps) {
  __shared__ float room[32];
  const int groups = blockDim.x / threads, group = threadIdx.x / threads, lane = threadIdx.x % threads;
  const int64_t stride = int64_t(gridDim.x) * groups;
  float weight[P][V];
  Pack<T, V> next[P];
  const auto read = [&](int64_t row) {
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int i = (lane + p * threads) * V;
      if (row < rows && i < n)
        next[p].read(x + row * n + i);
      else
        next[p].clear();
    }
  };
  read(int64_t(blockIdx.x) * groups + group);
#pragma unroll
  for (int p = 0; p < P; ++p) {
    const int i = (lane + p * threads) * V;
#pragma unroll
    for (int k = 0; k < V; ++k) weight[p][k] = i < n ? w[i + k] : 0.0f;
  }
  // Every group of a block takes equally many turns: the sums need all threads.
  for (int64_t first = int64_t(blockIdx.x) * groups; first < rows; first += stride) {
    const int64_t row = first + group;
    Pack<T, V> now[P];
    float sum = 0;
#pragma unroll
    for (int p = 0; p < P; ++p) now[p] = next[p];
    read(row + stride);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      float f[V];
      now[p].get(f);
#pragma unroll
      for (int k = 0; k < V; ++k) sum = fmaf(f[k], f[k], sum);
    }
    const float by = rsqrtf(group_sum(sum, threads, room) / float(n) + eps);
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int i = (lane + p * threads) * V;
      float f[V];
      now[p].get(f);
#pragma unroll
      for (int k = 0; k < V; ++k) f[k] *= weight[p][k] * by;
      if (row < rows && i < n) store(y + row * n + i, f);
    }
  }
}

// dx = by w dy - x by^3 dot / n with dot = sum of x w dy; dw += dy x by.
template <class T, int V, int P, int kBlock>
__global__ void __launch_bounds__(kBlock)
    backward(const T* x, Floats w, const T* dy, T* dx, float* part, int64_t rows, int n, int threads, float eps) {
  extern __shared__ float sums[];  // [groups of the block, n] when part is wanted and a block has several
  __shared__ float room[64];
  const int groups = blockDim.x / threads, group = threadIdx.x / threads, lane = threadIdx.x % threads;
  const int64_t stride = int64_t(gridDim.x) * groups;
  float total[P][V], weight[P][V];
#pragma unroll
  for (int p = 0; p < P; ++p) {
    const int i = (lane + p * threads) * V;
#pragma unroll
    for (int k = 0; k < V; ++k) total[p][k] = 0, weight[p][k] = i < n ? w[i + k] : 0.0f;
  }
  constexpr bool kAhead = kBlock <= kRowBlock || V * P < kMostKept;  // else registers run out
  Pack<T, V> next_x[P], next_g[P];
  const auto read = [&](int64_t row) {
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int i = (lane + p * threads) * V;
      if (row < rows && i < n)
        next_x[p].read(x + row * n + i), next_g[p].read(dy + row * n + i);
      else
        next_x[p].clear(), next_g[p].clear();
    }
  };
  if (kAhead) read(int64_t(blockIdx.x) * groups + group);
  // Every group of a block takes equally many turns: the sums need all threads.
  for (int64_t first = int64_t(blockIdx.x) * groups; first < rows; first += stride) {
    const int64_t row = first + group;
    const bool mine = row < rows;
    Pack<T, V> px[P], pg[P];
    if (!kAhead) read(row);
#pragma unroll
    for (int p = 0; p < P; ++p) px[p] = next_x[p], pg[p] = next_g[p];
    if (kAhead) read(row + stride);
    float square = 0, dot = 0;
#pragma unroll
    for (int p = 0; p < P; ++p) {
      float f[V], g[V];
      px[p].get(f), pg[p].get(g);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        square = fmaf(f[k], f[k], square);
        dot = fmaf(f[k] * weight[p][k], g[k], dot);
      }
    }
    group_sums(square, dot, threads, room);
    const float by = rsqrtf(square / float(n) + eps), back = by * by * by * (dot / float(n));
#pragma unroll
    for (int p = 0; p < P; ++p) {
      const int i = (lane + p * threads) * V;
      float f[V], g[V];
      px[p].get(f), pg[p].get(g);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        total[p][k] = fmaf(g[k] * by, f[k], total[p][k]);
        g[k] = fmaf(by * weight[p][k], g[k], -f[k] * back);
      }
      if (dx && mine && i < n) store(dx + row * n + i, g);
    }
  }
  if (!part) return;
  float* own = groups > 1 ? sums + group * n : part + int64_t(blockIdx.x) * n;
#pragma unroll
  for (int p = 0; p < P; ++p) {
    const int i = (lane + p * threads) * V;
#pragma unroll
    for (int k = 0; k < V; ++k)
      if (i + k < n) own[i + k] = total[p][k];
  }
  if (groups == 1) return;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    float sum = 0;
    for (int k = 0; k < groups; ++k) sum += sums[k * n + i];
    part[int64_t(blockIdx.x) * n + i] = sum;
  }
}

bool all_aligned(const void* a, const void* b, const void* c, const void* d) {
  return (uintptr_t(a) | uintptr_t(b) | uintptr_t(c) | uintptr_t(d)) % 16 == 0;
}

// Blocks that stay: as many of a multiprocessor as `numbers` a thread keeps of them leave room for, each with equally
// many turns. Measured on an H200: more of the backward's blocks cost more than they hide.
constexpr int64_t kProcessors = 132;
int64_t blocks_of(const NormSizes& z, const RowPlan& p, int numbers) {
  const int64_t groups = p.block / p.threads, all = (z.rows + groups - 1) / groups;
  const int held = p.pack * p.packs, each = held * 8 <= numbers ? 8 : numbers / held;
  const int64_t most = kProcessors * (each < 1 ? 1 : each), turns = (all + most - 1) / most;
  return turns ? (all + turns - 1) / turns : 1;
}
constexpr int kForwardNumbers = 64, kBackwardNumbers = 32;

}  // namespace

bool norm_fits(uint32_t dtype, int64_t n) {
  RowPlan p;
  return n < int64_t(1) << 30 && plan_row(dtype, n, true, p);
}

cudaError_t rms_norm(const NormSizes& z, const void* x, const void* w, void* y, cudaStream_t s) {
  if (z.rows * z.n == 0) return cudaSuccess;
  RowPlan p;
  if (!plan_row(z.dtype, z.n, all_aligned(x, w, y, nullptr), p)) return cudaErrorMisalignedAddress;
  const unsigned blocks = unsigned(blocks_of(z, p, kForwardNumbers));
  dispatch(z.dtype, p, [&]<class T, int V, int P>() {
    const auto run = [&]<int kBlock>() {
      forward<T, V, P, kBlock><<<blocks, p.block, 0, s>>>(static_cast<const T*>(x), {w, z.w_type}, static_cast<T*>(y),
                                                          z.rows, int(z.n), p.threads, z.eps);
    };
    if (p.block <= kRowBlock) return run.template operator()<kRowBlock>();
    if constexpr (P >= 4) run.template operator()<kMostThreads>();  // shorter rows never take a larger block
  });
  return cudaGetLastError();
}

int64_t norm_parts(const NormSizes& z) {
  RowPlan p;
  return plan_row(z.dtype, z.n, true, p) ? blocks_of(z, p, kBackwardNumbers) : 1;
}

cudaError_t rms_norm_backward(const NormSizes& z, const void* x, const void* w, const void* dy, void* dx, float* part,
                              cudaStream_t s) {
  RowPlan p;
  if (!plan_row(z.dtype, z.n, all_aligned(x, w, dy, dx), p)) return cudaErrorMisalignedAddress;
  const int64_t groups = p.block / p.threads;
  const unsigned blocks = unsigned(norm_parts(z));
  const size_t room = part && groups > 1 ? size_t(groups * z.n) * sizeof(float) : 0;
  dispatch(z.dtype, p, [&]<class T, int V, int P>() {
    const auto run = [&]<int kBlock>() {
      backward<T, V, P, kBlock><<<blocks, p.block, room, s>>>(static_cast<const T*>(x), {w, z.w_type},
                                                              static_cast<const T*>(dy), static_cast<T*>(dx), part,
                                                              z.rows, int(z.n), p.threads, z.eps);
    };
    if (p.block <= kRowBlock) return run.template operator()<kRowBlock>();
    if constexpr (P >= 4) run.template operator()<kMostThreads>();
  });
  return cudaGetLastError();
}

}  // namespace kb::cuda::element
