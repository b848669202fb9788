// depth_mix_cuda.cuh: what both directions share: rows of 16-byte pieces, the ring of rows in shared memory that the bulk
// copy engine fills ahead of use, sums over a warp, and the softmax of one token.
#pragma once
#include <cuda_bf16.h>

#include "depth_mix_cuda.h"

namespace depth_mix_cuda {

// ---- 16 bytes as floats -----------------------------------------------------------------------------------------------
template <class T>
inline constexpr int kPiece = 16 / int(sizeof(T));  // elements

template <class T>
__device__ __forceinline__ void unpack(const uint4& x, float (&f)[kPiece<T>]) {
  const uint32_t w[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if constexpr (sizeof(T) == 2)
      f[2 * k] = __uint_as_float(w[k] << 16), f[2 * k + 1] = __uint_as_float(w[k] & 0xffff0000u);
    else
      f[k] = __uint_as_float(w[k]);
}
template <class T>
__device__ __forceinline__ uint4 pack(const float (&f)[kPiece<T>]) {
  uint32_t w[4];
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if constexpr (sizeof(T) == 2) {
      const __nv_bfloat162 b = __floats2bfloat162_rn(f[2 * k], f[2 * k + 1]);
      w[k] = *reinterpret_cast<const uint32_t*>(&b);
    } else {
      w[k] = __float_as_uint(f[k]);
    }
  return {w[0], w[1], w[2], w[3]};
}
__device__ __forceinline__ float load(const float* p) { return *p; }
__device__ __forceinline__ float load(const __nv_bfloat16* p) { return __bfloat162float(*p); }
__device__ __forceinline__ void store(float* p, float x) { *p = x; }
__device__ __forceinline__ void store(__nv_bfloat16* p, float x) { *p = __float2bfloat16_rn(x); }

__device__ __forceinline__ int64_t tokens_in_use(const Problem& a) {
  return a.used ? min(a.tokens, int64_t(*a.used)) : a.tokens;
}

// ---- sums over a warp ---------------------------------------------------------------------------------------------------
// N sums at once: lane l returns the total of s[l / (32 / N)]. Each step halves what a lane still carries.
template <int kBit = 16, int N>
__device__ __forceinline__ float warp_sums(const float (&s)[N], int lane) {
  if constexpr (N == 1) {
    float total = s[0];
#pragma unroll
    for (int b = kBit; b >= 1; b /= 2) total += __shfl_xor_sync(~0u, total, b);
    return total;
  } else {
    const bool upper = lane & kBit;
    float half[N / 2];
#pragma unroll
    for (int j = 0; j < N / 2; ++j) {
      const float keep = upper ? s[j + N / 2] : s[j], give = upper ? s[j] : s[j + N / 2];
      half[j] = keep + __shfl_xor_sync(~0u, give, kBit);
    }
    return warp_sums<kBit / 2>(half, lane);
  }
}

// Lane i < n brings the logit of source i and gets its weight.
__device__ __forceinline__ float softmax16(float logit, int lane, int n) {
  float top = lane < n ? logit : -INFINITY;
#pragma unroll
  for (int b = 8; b >= 1; b /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, b));
  const float e = lane < n ? expf(logit - top) : 0.f;
  float sum = e;
#pragma unroll
  for (int b = 8; b >= 1; b /= 2) sum += __shfl_xor_sync(~0u, sum, b);
  return e / sum;
}
__device__ __forceinline__ float sum16(float x) {  // over lanes 0 .. 15
#pragma unroll
  for (int b = 8; b >= 1; b /= 2) x += __shfl_xor_sync(~0u, x, b);
  return x;
}

// The factors of source `lane`: dv = p dh + beta c + gamma v.
struct Factors {
  float p, beta, gamma;
};
__device__ __forceinline__ Factors factors(float cv, float vv, float uv, int64_t d, float eps, int lane, int n) {
  const float root = rsqrtf(vv / float(d) + eps);
  const float p = softmax16(cv * root, lane, n);
  const float mean = sum16(lane < n ? p * uv : 0.f);
  const float beta = p * (uv - mean) * root;
  return {p, beta, -beta * root * (root * cv / float(d))};
}

// ---- the ring -------------------------------------------------------------------------------------------------------------
__device__ __forceinline__ uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ void barrier_init(uint64_t* b, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint64_t* b, uint32_t parity) {
  asm volatile(
      "{\n .reg .pred done;\n again:\n"
      " mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      " @!done bra again;\n}" ::"r"(shared_address(b)),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void copy_row(void* to, const void* from, uint32_t bytes, uint64_t* full) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(full)), "r"(bytes)
               : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(full))
               : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint64_t* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
__device__ __forceinline__ void workers_sync(int threads) {  // all but the filling warp
  asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
}

// Rows of 16-byte pieces that pass through shared memory in the order of use. full[s]: the row in slot s has arrived;
// empty[s]: every computing warp is done with it.
inline constexpr int kSums = 64;  // floats a warp and token: up to four sums for each of 16 sources
struct Ring {
  unsigned char* slot0;
  float* sums;  // [2, warps, kSums]: of this token and the next
  uint64_t *full, *empty;
  int slots;
  uint32_t bytes;  // a row
  int slot = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ Ring(unsigned char* shared, int warps, int n_slots, uint32_t row_bytes)
      : slot0(shared), slots(n_slots), bytes(row_bytes) {
    sums = reinterpret_cast<float*>(shared + size_t(slots) * bytes);
    full = reinterpret_cast<uint64_t*>(sums + 2 * warps * kSums);
    empty = full + slots;
    if (threadIdx.x == 0) {
      for (int s = 0; s < slots; ++s) barrier_init(full + s, 1), barrier_init(empty + s, warps);
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
  }
  __device__ __forceinline__ void next() {
    if (++slot == slots) slot = 0, parity ^= 1;
  }
  __device__ __forceinline__ const uint4* row(int s) const {
    return reinterpret_cast<const uint4*>(slot0 + size_t(s) * bytes);
  }
  __device__ __forceinline__ const uint4* wait() const {
    barrier_wait(full + slot, parity);
    return row(slot);
  }
  __device__ __forceinline__ void release(int s, int lane) const {  // by each computing warp
    __syncwarp();
    if (lane == 0) barrier_arrive(empty + s);
  }
  // By one thread of the filling warp: the next row comes from `from`.
  __device__ __forceinline__ void fill(const void* from) {
    barrier_wait(empty + slot, parity ^ 1);  // passes at once in the first round
    copy_row(slot0 + size_t(slot) * bytes, from, bytes, full + slot);
    next();
  }
};
inline int64_t shared_bytes(int warps, int slots, int64_t row) {
  return slots * row + 2 * warps * kSums * 4 + slots * 16;
}

// As many blocks as run at once, at most l.blocks; 0 blocks and an error if the kernel cannot be launched so.
template <class K>
cudaError_t fit_blocks(K* kernel, Layout& l) {
  const cudaError_t e = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(l.shared));
  if (e != cudaSuccess) return e;
  int at_once = 0;
  const cudaError_t o = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&at_once, kernel, l.threads, size_t(l.shared));
  if (o != cudaSuccess) return o;
  if (at_once > 0 && at_once * kMultiprocessors < l.blocks) l.blocks = at_once * kMultiprocessors;
  return cudaSuccess;
}

// ---- the direct way
// The layout of narrow bf16 rows, with 1, 2 or `most_pieces` pieces a thread; false: they are too wide.
inline bool direct_layout(Layout& l, int n, int64_t pieces, int64_t d, int most_pieces) {
  l.pieces = pieces <= 32 ? 1 : n <= 6 && pieces > 64 && most_pieces == 4 ? 4 : 2;
  if (pieces > 4 * 32 * l.pieces) return false;
  l.way = Layout::direct;
  l.warps = pieces <= 32 * l.pieces ? 1 : pieces <= 64 * l.pieces ? 2 : 4;
  l.threads = 128;
  l.blocks = 8 * kMultiprocessors;
  l.shared = d * 4 + 2 * 4 * kSums * 4;  // norm * query; two turns of the sums of four warps
  return true;
}
// What a thread of a direct kernel is.
struct Worker {
  int lane, warps, group, groups, own, index, workers;
  __device__ __forceinline__ explicit Worker(int warps_of_token) : warps(warps_of_token) {
    const int warp = threadIdx.x >> 5;
    lane = threadIdx.x & 31, group = warp / warps, groups = 4 / warps, own = warp % warps;
    workers = warps * 32, index = own * 32 + lane;
  }
  __device__ __forceinline__ void sync() const {  // the warps of one token
    if (warps == 1)
      __syncwarp();
    else
      asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "r"(workers) : "memory");
  }
};
// norm * query, by all threads of the block. The lower and the upper halves of the pieces lie apart: then neighbouring lanes
// read neighbouring banks.
__device__ __forceinline__ void multiply_weights(const Problem& a, float* c) {
  for (int x = threadIdx.x; x < a.d; x += blockDim.x)
    c[(x & 4 ? a.d / 2 : 0) + x / 8 * 4 + (x & 3)] = a.norm[x] * a.query[x];
  __syncthreads();
}
__device__ __forceinline__ void load_weights(const float* c, int64_t d, int piece, float (&f)[8]) {
  const float4 x = *reinterpret_cast<const float4*>(c + 4 * piece),
               y = *reinterpret_cast<const float4*>(c + d / 2 + 4 * piece);
  f[0] = x.x, f[1] = x.y, f[2] = x.z, f[3] = x.w, f[4] = y.x, f[5] = y.y, f[6] = y.z, f[7] = y.w;
}
// Towards the second-level cache: what a later token needs.
__device__ __forceinline__ void prefetch_row(const void* row, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(row), "r"(bytes) : "memory");
}

}  // namespace depth_mix_cuda
