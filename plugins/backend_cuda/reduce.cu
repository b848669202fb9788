// reduce.cu: the reduction of the middle axis of [outer, width, inner], in one or two passes. Rows (inner 1): a group
// of threads a row. Columns: a thread a vector of neighbouring columns, the block's second axis along the width. Long
// sums over few results are cut in pieces along the width, whose results the second pass reduces by the same kernels.
#include "element.cuh"
#include "reduce_cuda.h"

namespace kb::cuda::element {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kFill = 132 * 8;     // blocks that occupy the device
constexpr int64_t kLeastPiece = 2048;  // elements of a row that a block of its own is worth
constexpr int64_t kLeastRows = 256;    // rows of a column that a piece has at least
constexpr int64_t kMostPieces = 1024;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
int64_t clamp(int64_t v, int64_t least, int64_t most) { return v < least ? least : v > most ? most : v; }

// Threads of a row: a power of two up to 32, or a whole block.
int row_threads(int64_t width) {
  if (width > 4096) return kThreads;
  int t = 1;
  while (t < 32 && t * 32 < width) t *= 2;
  return t;
}
int64_t row_pieces(const Middle& m) {
  if (m.outer >= kFill) return 1;
  return clamp(kFill / (m.outer ? m.outer : 1), 1, clamp(m.width / kLeastPiece, 1, kMostPieces));
}
// Columns: threads along the width in a block.
int column_depth(const Middle& m) {
  int d = 1;
  while (d < 16 && d * 4 < m.width) d *= 2;
  return d;
}
int64_t column_pieces(const Middle& m) {
  const int64_t across = ceil_div(m.outer * m.inner, 8 * (kThreads / column_depth(m)));  // blocks with vectors of 8
  if (across >= kFill) return 1;
  return clamp(kFill / (across ? across : 1), 1, clamp(m.width / kLeastRows, 1, kMostPieces));
}
int64_t pieces(const Middle& m) { return m.inner == 1 ? row_pieces(m) : column_pieces(m); }

template <Reduction R>
__device__ inline float start() {
  return R == Reduction::max ? -INFINITY : 0.0f;
}
template <Reduction R>
__device__ inline float gather(float sum, float x) {
  return R == Reduction::max ? fmaxf(sum, x) : sum + x;
}
template <Reduction R>  // of two partial results
__device__ inline float join(float a, float b) {
  return R == Reduction::max ? fmaxf(a, b) : a + b;
}

struct Place {
  void* at;
  uint32_t dtype;
  bool add;
  __device__ void put(int64_t i, float v) const {
    const FloatsOut out{at, dtype};
    out.set(i, add ? out.get(i) + v : v);
  }
};

__device__ inline int64_t width_in_use(int64_t width, InUse u) {
  if (!u.rows) return width;
  const int64_t n = *u.rows * u.each;
  return n < width ? n : width;
}

// grid: (rows, pieces). Result [outer, pieces].
template <Reduction R, class In, int V>
__global__ void __launch_bounds__(kThreads)
    reduce_rows(const In* x, int64_t outer, int64_t width, int64_t each, InUse in_use, int threads, Place y) {
  __shared__ float room[32];
  const int64_t row =
      threads == kThreads ? blockIdx.x : int64_t(blockIdx.x) * (kThreads / threads) + threadIdx.x / threads;
  const int lane = threads == kThreads ? threadIdx.x : threadIdx.x % threads;
  const int64_t used = width_in_use(width, in_use), from = blockIdx.y * each;
  const int64_t end = from + each < used ? from + each : used;
  float sum = start<R>(), more[V];
#pragma unroll
  for (int k = 0; k < V; ++k) more[k] = start<R>();
  if (row < outer) {
    const In* at = x + row * width;
    int64_t i = from + int64_t(lane) * V;
#pragma unroll 4
    for (; i + V <= end; i += int64_t(threads) * V) {
      float f[V];
      load(at + i, f);
#pragma unroll
      for (int k = 0; k < V; ++k) more[k] = gather<R>(more[k], f[k]);
    }
    for (int64_t k = i; k < end && k < i + V; ++k) sum = gather<R>(sum, widen(at[k]));
  }
#pragma unroll
  for (int k = 0; k < V; ++k) sum = join<R>(sum, more[k]);
  if (threads == kThreads)
    sum = R == Reduction::max ? block_max(sum, room) : block_sum(sum, room);
  else
    sum = R == Reduction::max ? warp_max(sum, threads) : warp_sum(sum, threads);
  if (row < outer && lane == 0) y.put(row * gridDim.y + blockIdx.y, sum);
}

// block: (columns, depth); grid: (columns of all outer, pieces). Result [outer, pieces, inner].
template <Reduction R, class In, int V>
__global__ void __launch_bounds__(kThreads)
    reduce_columns(const In* x, int64_t outer, int64_t width, int64_t inner, int64_t each, InUse in_use, Place y) {
  __shared__ float room[kThreads * V];
  const int64_t units = inner / V, q = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t o = q / units, column = (q - o * units) * V;
  const int64_t used = width_in_use(width, in_use), from = blockIdx.y * each;
  const int64_t end = from + each < used ? from + each : used;
  float sum[V];
#pragma unroll
  for (int k = 0; k < V; ++k) sum[k] = start<R>();
  if (o < outer) {
    const In* at = x + o * width * inner + column;
#pragma unroll 4
    for (int64_t r = from + threadIdx.y; r < end; r += blockDim.y) {
      float f[V];
      load(at + r * inner, f);
#pragma unroll
      for (int k = 0; k < V; ++k) sum[k] = gather<R>(sum[k], f[k]);
    }
  }
  if (blockDim.y > 1) {
    float* own = room + (threadIdx.y * blockDim.x + threadIdx.x);  // [V][threads]: no two lanes share a bank
#pragma unroll
    for (int k = 0; k < V; ++k) own[k * kThreads] = sum[k];
    for (int d = blockDim.y >> 1; d; d >>= 1) {
      __syncthreads();
      if (threadIdx.y < d) {
#pragma unroll
        for (int k = 0; k < V; ++k) {
          sum[k] = join<R>(sum[k], own[k * kThreads + d * blockDim.x]);
          own[k * kThreads] = sum[k];
        }
      }
    }
  }
  if (o < outer && threadIdx.y == 0) {
#pragma unroll
    for (int k = 0; k < V; ++k) y.put((o * gridDim.y + blockIdx.y) * inner + column + k, sum[k]);
  }
}

template <Reduction R, class In>
void pass(const In* x, const Middle& m, int64_t pieces, InUse in_use, Place y, cudaStream_t s) {
  constexpr int V = 16 / sizeof(In);
  const int64_t results = m.outer * m.inner;
  if (results == 0) return;
  const bool start_aligned = reinterpret_cast<uintptr_t>(x) % 16 == 0;
  if (m.inner == 1) {
    const int threads = row_threads(m.width);
    const dim3 grid(unsigned(threads == kThreads ? m.outer : ceil_div(m.outer, kThreads / threads)), unsigned(pieces));
    const int64_t each = ceil_div(ceil_div(m.width, pieces), V) * V;  // pieces stay aligned
    if (start_aligned && (m.width % V == 0 || m.outer == 1))
      reduce_rows<R, In, V><<<grid, kThreads, 0, s>>>(x, m.outer, m.width, each, in_use, threads, y);
    else
      reduce_rows<R, In, 1><<<grid, kThreads, 0, s>>>(x, m.outer, m.width, each, in_use, threads, y);
    return;
  }
  const int depth = column_depth(m);
  const dim3 block(unsigned(kThreads / depth), unsigned(depth));
  const int64_t each = ceil_div(m.width, pieces);
  if (start_aligned && m.inner % V == 0)
    reduce_columns<R, In, V><<<dim3(unsigned(ceil_div(results / V, block.x)), unsigned(pieces)), block, 0, s>>>(
        x, m.outer, m.width, m.inner, each, in_use, y);
  else
    reduce_columns<R, In, 1><<<dim3(unsigned(ceil_div(results, block.x)), unsigned(pieces)), block, 0, s>>>(
        x, m.outer, m.width, m.inner, each, in_use, y);
}

template <Reduction R>
void reduce(const void* x, uint32_t x_type, const Middle& m, InUse in_use, Place y, float* room, cudaStream_t s) {
  const int64_t n = pieces(m);
  const Place first = n > 1 ? Place{room, KB_F32, false} : y;
  if (x_type == KB_BF16)
    pass<R>(static_cast<const Bf16*>(x), m, n, in_use, first, s);
  else
    pass<R>(static_cast<const float*>(x), m, n, in_use, first, s);
  if (n > 1) pass<R>(static_cast<const float*>(room), {m.outer, n, m.inner}, 1, {}, y, s);
}

__global__ void integers(const int32_t* x, Middle m, InUse in_use, int32_t* y, bool add) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= m.outer * m.inner) return;
  int64_t sum = add ? y[i] : 0;
  const int32_t* at = x + i / m.inner * m.width * m.inner + i % m.inner;
  for (int64_t k = 0, n = width_in_use(m.width, in_use); k < n; ++k) sum += at[k * m.inner];
  y[i] = int32_t(sum);
}

}  // namespace

int64_t reduce_room(const Middle& m) {
  const int64_t n = pieces(m);
  return n > 1 ? m.outer * n * m.inner : 0;
}

void reduce_middle(Reduction r, const void* x, uint32_t x_type, const Middle& m, InUse in_use, void* y, uint32_t y_type,
                   bool add, float* room, cudaStream_t s) {
  const Place place{y, y_type, add};
  switch (r) {
    case Reduction::sum:
      return reduce<Reduction::sum>(x, x_type, m, in_use, place, room, s);
    case Reduction::max:
      return reduce<Reduction::max>(x, x_type, m, in_use, place, room, s);
  }
}

void sum_integers(const int32_t* x, const Middle& m, InUse in_use, int32_t* y, bool add, cudaStream_t s) {
  const int64_t n = m.outer * m.inner;
  if (n) integers<<<unsigned(ceil_div(n, kThreads)), kThreads, 0, s>>>(x, m, in_use, y, add);
}

}  // namespace kb::cuda::element
