// attention_common.cu: what forward and backward of every type need beside the products: the largest logit of a head, the
// dot of outputs with their gradients, and the layout of the workspace.
#include "attention_device.cuh"
#include "attention_mma.cuh"

namespace kb::cuda {
namespace {

__global__ void __launch_bounds__(256)
    peak_of(const float* __restrict__ found, const int32_t* __restrict__ count, int each, int heads, float* peak) {
  __shared__ float warp[8];
  float most = -INFINITY;
  for (int i = threadIdx.x; i < *count * each; i += 256) most = fmaxf(most, found[int64_t(i) * heads + blockIdx.x]);
  for (int i = 16; i; i /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, i));
  if ((threadIdx.x & 31) == 0) warp[threadIdx.x >> 5] = most;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < 8; ++i) most = fmaxf(most, warp[i]);
    peak[blockIdx.x] = most;
  }
}

__device__ float value(float x) { return x; }
__device__ float value(bf16 x) { return __bfloat162float(x); }

template <class T>  // one warp a row
__global__ void __launch_bounds__(256)
    dots(const T* __restrict__ a, const T* __restrict__ b, int64_t rows, int width, float* out) {
  const int64_t row = int64_t(blockIdx.x) * 8 + (threadIdx.x >> 5);
  const int lane = threadIdx.x & 31;
  if (row >= rows) return;
  float s = 0;
  for (int i = lane; i < width; i += 32) s += value(a[row * width + i]) * value(b[row * width + i]);
  for (int i = 16; i; i /= 2) s += __shfl_xor_sync(~0u, s, i);
  if (lane == 0) out[row] = s;
}
// Rows of 128 bf16 values, 16 lanes of 16 bytes each.
__global__ void __launch_bounds__(256)
    dots_128(const uint4* __restrict__ a, const uint4* __restrict__ b, int64_t rows, float* out) {
  const int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x;
  float s = 0;
  if (i < rows * 16) {
    const uint4 x = a[i], y = b[i];
    const auto* p = reinterpret_cast<const __nv_bfloat162*>(&x);
    const auto* r = reinterpret_cast<const __nv_bfloat162*>(&y);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 u = __bfloat1622float2(p[j]), w = __bfloat1622float2(r[j]);
      s += u.x * w.x + u.y * w.y;
    }
  }
  for (int j = 8; j; j /= 2) s += __shfl_xor_sync(~0u, s, j);
  if (i < rows * 16 && (threadIdx.x & 15) == 0) out[i / 16] = s;
}

}  // namespace

// Workspace: the tiles, then [tiles, heads] largest logits (forward) or [tokens, heads] dots (backward).
size_t attention_forward_bytes(const AttentionShape& s) {
  return rounded(attention_tiles_bytes(s.tokens, s.documents)) +
         size_t(attention_tiles_most(s.tokens, s.documents) * kFoundOfTile * s.heads) * sizeof(float);
}
float* attention_found(const AttentionForwardArgs& a) {
  return reinterpret_cast<float*>(static_cast<char*>(a.workspace) +
                                  rounded(attention_tiles_bytes(a.s.tokens, a.s.documents)));
}
size_t attention_backward_bytes(const AttentionShape& s) {
  return rounded(attention_tiles_bytes(s.tokens, s.documents)) + size_t(s.tokens * s.heads) * sizeof(float);
}
float* attention_delta(const AttentionBackwardArgs& a) {
  return reinterpret_cast<float*>(static_cast<char*>(a.workspace) +
                                  rounded(attention_tiles_bytes(a.s.tokens, a.s.documents)));
}

void attention_peak(const float* found, const int32_t* count, int each, int64_t heads, float* peak,
                    cudaStream_t stream) {
  peak_of<<<unsigned(heads), 256, 0, stream>>>(found, count, each, int(heads), peak);
  check_launch("attention peak");
}

void attention_delta_bf16(const void* o, const void* up, int64_t rows, int64_t width, float* delta,
                          cudaStream_t stream) {
  if (rows == 0) return;
  if (width == 128)
    dots_128<<<unsigned((rows + 15) / 16), 256, 0, stream>>>(static_cast<const uint4*>(o),
                                                             static_cast<const uint4*>(up), rows, delta);
  else
    dots<<<unsigned((rows + 7) / 8), 256, 0, stream>>>(static_cast<const bf16*>(o), static_cast<const bf16*>(up), rows,
                                                       int(width), delta);
  check_launch("attention delta");
}
void attention_delta_f32(const void* o, const void* up, int64_t rows, int64_t width, float* delta,
                         cudaStream_t stream) {
  if (rows == 0) return;
  dots<<<unsigned((rows + 7) / 8), 256, 0, stream>>>(static_cast<const float*>(o), static_cast<const float*>(up), rows,
                                                     int(width), delta);
  check_launch("attention delta");
}

}  // namespace kb::cuda
