// topk.cu: a warp holds a row of up to 1024 numbers in registers, as integers whose order is theirs: a lane has the
// numbers lane, lane + 32, .., in groups of 8 whose best it knows. k times the warp takes the best of all lanes; only
// the lane that lost it looks again, at one group. A longer row takes a block that reads it again after each loss.
#include <utility>

#include "element.cuh"
#include "topk_cuda.h"

namespace kb::cuda::element {
namespace {

constexpr int kThreads = 256;

// Larger is better. 0 is below everything; NaN is 1 above it, so that it may be taken.
__device__ inline uint64_t key_of(float v, uint32_t id) {
  uint32_t b = __float_as_uint(v == 0 ? 0.0f : v);  // -0 and 0 are equal
  b = b & 0x80000000u ? ~b : b | 0x80000000u;
  if (v != v) b = 0;
  return uint64_t(b) << 32 | (0xffffffffu - id);
}
__device__ inline uint32_t id_of(uint64_t key) { return 0xffffffffu - uint32_t(key); }

__device__ inline uint64_t warp_best(uint64_t key) {
#pragma unroll
  for (int o = 16; o; o >>= 1) {
    const uint64_t other = __shfl_xor_sync(0xffffffffu, key, o);
    key = other > key ? other : key;
  }
  return key;
}

template <class T>
__device__ inline void put(const T* x, int64_t at, uint64_t key, T* values, int32_t* ids) {
  if (values) values[at] = x[id_of(key)];
  if (ids) ids[at] = int32_t(id_of(key));
}

// Order of the numbers: 0 is nothing, 1 NaN.
__device__ inline uint32_t order_of(float v) {
  uint32_t b = __float_as_uint(v == 0 ? 0.0f : v);  // -0 and 0 are equal
  b = b & 0x80000000u ? ~b : b | 0x80000000u;
  return v != v ? 1u : b;
}

// The largest of a group, and the first place of it; `first`: the place of its first number.
__device__ __forceinline__ void look(const uint32_t (&key)[8], int first, uint32_t& top, int& where) {
  top = key[0], where = first;
#pragma unroll
  for (int j = 1; j < 8; ++j)
    if (key[j] > top) top = key[j], where = first + j;
}

// Group g loses its number j. The comment that ends it keeps the groups' branches apart: merged, they would index
// memory.
template <int g>
__device__ __forceinline__ void lose(uint32_t (&key)[8], int j, uint32_t& top, int& where) {
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (i == j) key[i] = 0;
  look(key, 8 * g, top, where);
  asm volatile("// group %0" ::"n"(g));
}

template <class T, int G>  // G groups of 8
__global__ void __launch_bounds__(kThreads)
    short_rows(const T* x, int64_t rows, int n, int k, T* values, int32_t* ids) {
  const int64_t row = (int64_t(blockIdx.x) * kThreads + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;  // whole warps
  x += row * n;
  uint32_t key[G][8], top[G];  // top: the largest of a group
  int where[G];                // the first place of it in the lane's numbers
#pragma unroll
  for (int g = 0; g < G; ++g) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int i = lane + 32 * (8 * g + j);
      key[g][j] = i < n ? order_of(widen(x[i])) : 0;
    }
    look(key[g], 8 * g, top[g], where[g]);
  }
  int32_t kept = 0;  // lane l keeps the ids of turns l, l + 32, ..
  for (int turn = 0; turn < k; ++turn) {
    uint32_t best = top[0];
    int at = where[0];
#pragma unroll
    for (int g = 1; g < G; ++g)
      if (top[g] > best) best = top[g], at = where[g];
    const uint32_t most = __reduce_max_sync(0xffffffffu, best);
    const uint32_t id = __reduce_min_sync(0xffffffffu, best == most ? uint32_t(lane + 32 * at) : 0xffffffffu);
    if (turn % 32 == lane) kept = int32_t(id);
    if (int(id % 32) == lane) {
      const int taken = int(id / 32);
      [&]<int... g>(std::integer_sequence<int, g...>) {
        ((taken / 8 == g ? lose<g>(key[g], taken % 8, top[g], where[g]) : void()), ...);
      }
      (std::make_integer_sequence<int, G>{});
    }
    if (turn % 32 == 31 || turn + 1 == k) {
      const int64_t to = row * k + turn / 32 * 32 + lane;
      if (turn / 32 * 32 + lane <= turn) {
        if (values) values[to] = x[kept];
        if (ids) ids[to] = kept;
      }
    }
  }
}

template <class T>
__global__ void __launch_bounds__(1024) long_rows(const T* x, int64_t n, int k, T* values, int32_t* ids) {
  __shared__ uint64_t room[32];
  const int64_t row = blockIdx.x;
  x += row * n;
  const auto look = [&](uint64_t below) {
    uint64_t best = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const uint64_t key = key_of(widen(x[i]), uint32_t(i));
      best = key < below && key > best ? key : best;
    }
    return best;
  };
  uint64_t best = look(~uint64_t(0));
  for (int turn = 0; turn < k; ++turn) {
    uint64_t taken = warp_best(best);
    if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = taken;
    __syncthreads();
    taken = warp_best(room[threadIdx.x % 32]);
    __syncthreads();
    if (threadIdx.x == 0) put(x, row * k + turn, taken, values, ids);
    if (best == taken) best = look(taken);
  }
}

template <class T>
void run(const T* x, int64_t rows, int64_t n, int k, T* values, int32_t* ids, cudaStream_t s) {
  const unsigned warps = unsigned((rows * 32 + kThreads - 1) / kThreads);
  if (n <= 32 * 8)
    short_rows<T, 1><<<warps, kThreads, 0, s>>>(x, rows, int(n), k, values, ids);
  else if (n <= 32 * 32)
    short_rows<T, 4><<<warps, kThreads, 0, s>>>(x, rows, int(n), k, values, ids);
  else
    long_rows<<<unsigned(rows), 1024, 0, s>>>(x, n, k, values, ids);
}

}  // namespace

void topk(const void* x, uint32_t dtype, int64_t rows, int64_t n, int64_t k, void* values, int32_t* ids,
          cudaStream_t s) {
  if (rows == 0) return;
  if (dtype == KB_BF16)
    run(static_cast<const Bf16*>(x), rows, n, int(k), static_cast<Bf16*>(values), ids, s);
  else
    run(static_cast<const float*>(x), rows, n, int(k), static_cast<float*>(values), ids, s);
}

}  // namespace kb::cuda::element
