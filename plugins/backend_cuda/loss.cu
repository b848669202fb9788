// loss.cu: a block a row: a thread keeps the largest of its logits so far and the sum of exponentials below it, so
// that the logits are read once. The backward is one pass over pieces of rows.
#include "element.cuh"
#include "loss_cuda.h"

namespace kb::cuda::element {
namespace {

constexpr int kThreads = 512, kBackThreads = 256;
constexpr int64_t kPiece = 8192;  // logits of a block in the backward

template <class T>
__device__ inline float exponential(float v) {
  return sizeof(T) == 2 ? __expf(v) : expf(v);
}

struct Row {
  int target;
  float weight;
  bool counts, wrong;
};
__device__ inline Row row_of(const LossRows& r, int64_t i) {
  Row row{-1, 0, false, false};
  if (r.in_use && i >= *r.in_use) return row;
  row.target = r.target[i];
  row.weight = r.weight ? r.weight[i] : 1.0f;
  row.wrong = row.target >= r.n;
  row.counts = row.target >= 0 && row.weight != 0 && !row.wrong;
  return row;
}

// Adds numbers to a sum of exp(number - peak).
template <class T, int V>
__device__ inline void gather(const float (&f)[V], float& peak, float& sum) {
  float top = f[0];
#pragma unroll
  for (int k = 1; k < V; ++k) top = fmaxf(top, f[k]);
  if (top > peak) {
    sum *= exponential<T>(peak - top);  // 0 at first: peak is -inf
    peak = top;
  }
  if (peak == -INFINITY) {  // nothing above -inf yet, but NaN must get through
#pragma unroll
    for (int k = 0; k < V; ++k) sum = f[k] != f[k] ? NAN : sum;
    return;
  }
#pragma unroll
  for (int k = 0; k < V; ++k) sum += exponential<T>(f[k] - peak);
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads) forward(LossRows r, float* lse, float* losses) {
  __shared__ float room[32];
  const int64_t i = blockIdx.x;
  const Row row = row_of(r, i);
  if (!row.counts) {
    if (threadIdx.x == 0) {
      losses[i] = row.wrong ? NAN : 0.0f;
      if (lse) lse[i] = row.wrong ? NAN : 0.0f;
    }
    return;
  }
  const T* x = static_cast<const T*>(r.logits) + i * r.n;
  float peak = -INFINITY, sum = 0;
  int64_t k = int64_t(threadIdx.x) * V;
  constexpr int kAhead = 4;
  for (; k + int64_t(kAhead - 1) * kThreads * V + V <= r.n; k += int64_t(kAhead) * kThreads * V) {
    float f[kAhead][V];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) load(x + k + int64_t(a) * kThreads * V, f[a]);
#pragma unroll
    for (int a = 0; a < kAhead; ++a) gather<T>(f[a], peak, sum);
  }
  for (; k < r.n; k += int64_t(kThreads) * V) {  // n is a multiple of V
    float f[V];
    load(x + k, f);
    gather<T>(f, peak, sum);
  }
  const float top = block_max(peak, room);
  sum = block_sum(peak == -INFINITY ? sum : sum * exponential<T>(peak - top), room);
  if (threadIdx.x == 0) {
    const float z = top + logf(sum);
    if (lse) lse[i] = z;
    losses[i] = row.weight * (z - widen(x[row.target]));
  }
}

__global__ void __launch_bounds__(1024) total(const float* losses, int64_t rows, float* sum) {
  __shared__ double room[32];
  double s = 0;
  for (int64_t i = threadIdx.x; i < rows; i += 1024) s += double(losses[i]);
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  s = room[threadIdx.x];
  for (int o = 16; o; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
  if (threadIdx.x == 0) *sum = float(s);
}

template <class T, int V>
__global__ void __launch_bounds__(kBackThreads)
    backward(LossRows r, const float* lse, const float* up, T* dx, int64_t pieces) {
  const int64_t i = blockIdx.x / pieces, from = (blockIdx.x - i * pieces) * kPiece;
  const int64_t end = from + kPiece < r.n ? from + kPiece : r.n;
  const Row row = row_of(r, i);
  const T* x = static_cast<const T*>(r.logits) + i * r.n;
  dx += i * r.n;
  const float by = row.wrong ? NAN : row.counts ? *up * row.weight : 0.0f, z = row.counts ? lse[i] : 0.0f;
  for (int64_t k = from + int64_t(threadIdx.x) * V; k < end; k += int64_t(kBackThreads) * V) {
    float f[V];
    if (row.counts) {
      load(x + k, f);
#pragma unroll
      for (int j = 0; j < V; ++j) f[j] = by * (exponential<T>(f[j] - z) - (k + j == row.target ? 1.0f : 0.0f));
    } else {
#pragma unroll
      for (int j = 0; j < V; ++j) f[j] = by;
    }
    store(dx + k, f);
  }
}

template <class F>
void with_vector(const LossRows& r, const void* other, F&& f) {
  const bool aligned = (uintptr_t(r.logits) | uintptr_t(other)) % 16 == 0;
  if (r.dtype == KB_BF16) {
    if (aligned && r.n % 8 == 0)
      f.template operator()<Bf16, 8>();
    else
      f.template operator()<Bf16, 1>();
  } else {
    if (aligned && r.n % 4 == 0)
      f.template operator()<float, 4>();
    else
      f.template operator()<float, 1>();
  }
}

}  // namespace

void cross_entropy(const LossRows& r, float* sum, float* lse, float* losses, cudaStream_t s) {
  if (r.rows)
    with_vector(r, nullptr,
                [&]<class T, int V>() { forward<T, V><<<unsigned(r.rows), kThreads, 0, s>>>(r, lse, losses); });
  if (sum) total<<<1, 1024, 0, s>>>(losses, r.rows, sum);
}

void cross_entropy_backward(const LossRows& r, const float* lse, const float* up, void* dlogits, cudaStream_t s) {
  if (r.rows * r.n == 0) return;
  const int64_t pieces = (r.n + kPiece - 1) / kPiece;
  with_vector(r, dlogits, [&]<class T, int V>() {
    backward<T, V><<<unsigned(r.rows * pieces), kBackThreads, 0, s>>>(r, lse, up, static_cast<T*>(dlogits), pieces);
  });
}

}  // namespace kb::cuda::element
