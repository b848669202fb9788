// chunk_reverse_cuda.cu: the walk over the chunks of a document from its end (chunk_cuda.h), for the gradients of states. As
// forward, a warp has sixteen columns of the state's gradient, as rows of its transpose, in registers:
//   dN^T = dO^T P + dS^T Kr^T;  dV^T = dN^T (A diag(beta));  dS^T <- dS^T diag(c_last) + dO^T Q+ - dV^T K+
#include "chunk_segments_cuda.h"
#include "chunk_stage_cuda.cuh"

namespace kda::cuda {
namespace {

template <int D, int Groups, bool Ends>  // Ends: nothing but what leaves a segment, all but a document's first
__global__ void __launch_bounds__(Groups * 128, 1) reverse_kernel(Problem p, Chunks chunks) {
  using R = Record<D>;
  using X = Stage<D, Groups, !Ends, false>;
  extern __shared__ __align__(1024) unsigned char shared_raw[];
  uint64_t *full = reinterpret_cast<uint64_t*>(shared_raw + X::kBarriers), *empty = full + kStages;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const Walk w = walk_of(p, chunks.segments, blockIdx.x, D, X::kWidth);
  if (w.of == 0 || (Ends && w.place == 0)) return;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) barrier_init(&full[s], 1), barrier_init(&empty[s], Groups * 4);
    barrier_init_done();
  }
  __syncthreads();
  const int64_t value = w.v0 + warp * 16, matrix = (w.document * p.heads + w.h) * D * D;
  bf16* strips = reinterpret_cast<bf16*>(shared_raw + X::kStrips) + warp * kStages * kStrip;
  bf16* states = reinterpret_cast<bf16*>(shared_raw + X::kStates) + warp * 16 * D;
  auto copy = [&](int i) {
    if (warp == 0) copy_record<D, X>(p, w, i, chunks.records, true, shared_raw, full, empty);
    copy_strip<D>(p, w, i, p.d_o, value, true, strips);
  };
  copy(0);
  float dS[D / 2] = {};
  if (w.place < w.of - 1) {
    if (!Ends) state<D, true>(dS, chunks.segments.ends + ((w.segment + 1) * p.heads + w.h) * D * D, value);
  } else if (p.d_state) {
    state<D, true>(dS, p.d_state + matrix, value);
  }
  for (int i = 0; i < w.chunks; ++i) {
    const unsigned char* stage = shared_raw + i % kStages * X::kSize;
    const int chunk = w.chunks - 1 - i;
    const int64_t t = w.lo + int64_t(chunk) * kChunk, number = (w.first + chunk) * p.heads + w.h;
    const int n = int(min(int64_t(kChunk), w.hi - t));
    bf16* strip = strips + i % kStages * kStrip;
    copy(i + 1);
    uint32_t s[D / 16][4], up[4][4], x[4][4];
#pragma unroll
    for (int k = 0; k < D / 16; ++k) operand(s[k], dS, k);
    copy_wait<1>();
    barrier_wait(&full[i % kStages], i / kStages & 1);
    __syncwarp();
#pragma unroll
    for (int k = 0; k < 4; ++k) load_strip(up[k], strip, k);

    float n_acc[32], v_acc[32];
    const float *beta = reinterpret_cast<const float*>(stage + R::kBeta) + 2 * (lane & 3), *own = beta + kChunk;
    const float* last = reinterpret_cast<const float*>(stage + R::kLast) + 2 * (lane & 3);
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const float2 o = unpack(up[k][m]), c = *reinterpret_cast<const float2*>(own + 16 * k + 8 * (m >> 1));
        n_acc[8 * k + 2 * m] = o.x * c.x, n_acc[8 * k + 2 * m + 1] = o.y * c.y;
      }
#pragma unroll
    for (int j = 0; j < D / 8; ++j) {
      const float2 c = *reinterpret_cast<const float2*>(last + 8 * j);
      dS[4 * j] *= c.x, dS[4 * j + 1] *= c.y, dS[4 * j + 2] *= c.x, dS[4 * j + 3] *= c.y;
    }
    pin(n_acc), pin(dS);
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      wgmma<false>(n_acc, s[k], across(stage + R::kKrest + k / 4 * R::kTile + k % 4 * 32));
#pragma unroll
    for (int k = 0; k < 4; ++k) wgmma<true>(n_acc, up[k], along(stage + R::kPairs + k * 2048, R::kTile));
    wgmma_commit();
#pragma unroll
    for (int k = 0; k < 4; ++k) wgmma<true>(dS, up[k], along(stage + R::kQin + k * 2048, R::kTile));
    wgmma_commit();
    if constexpr (!Ends) store_state<D>(s, states, static_cast<bf16*>(chunks.dstates) + number * D * D + value * 64);
    wgmma_wait<1>();
    pin(n_acc);
#pragma unroll
    for (int k = 0; k < 4; ++k) operand(x[k], n_acc, k);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 b = *reinterpret_cast<const float2*>(beta + 8 * j);
#pragma unroll
      for (int m = 0; m < 4; ++m) v_acc[4 * j + m] = n_acc[4 * j + m] * (m & 1 ? b.y : b.x);
    }
    pin(v_acc);
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k) wgmma<true>(v_acc, x[k], along(stage + R::kSolve + k * 2048, R::kTile));
    wgmma_commit();
    wgmma_wait();
    pin(v_acc), pin(dS);
    uint32_t dv[4][4], minus[4][4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      operand(dv[k], v_acc, k);
#pragma unroll
      for (int m = 0; m < 4; ++m) minus[k][m] = dv[k][m] ^ 0x80008000u;
    }
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k) wgmma<true>(dS, minus[k], along(stage + R::kKin + k * 2048, R::kTile));
    wgmma_commit();
    if constexpr (!Ends)
      store_rows(dv, strip, static_cast<bf16*>(chunks.dvalues) + (t * p.heads + w.h) * D + value, p.heads * D, n);
    wgmma_wait();
    pin(dS);
    __syncwarp();
    if (lane == 0) barrier_arrive(&empty[i % kStages]);
  }
  if constexpr (Ends)
    state<D, false>(dS, chunks.segments.ends + (w.segment * p.heads + w.h) * D * D, value);
  else
    bulk_store_wait();
  if (!Ends && p.ds0 && w.place == 0) state<D, false>(dS, p.ds0 + matrix, value);
}

template <int D, int Groups, bool Ends>
cudaError_t launch(const Problem& p, const Chunks& c, cudaStream_t stream) {
  using X = Stage<D, Groups, !Ends, false>;
  const int64_t blocks = (Ends ? segment_budget(p) * p.heads : walks(p)) * (D / X::kWidth);
  cudaFuncSetAttribute(reverse_kernel<D, Groups, Ends>, cudaFuncAttributeMaxDynamicSharedMemorySize, X::kTotal);
  if (blocks) reverse_kernel<D, Groups, Ends><<<unsigned(blocks), X::kThreads, X::kTotal, stream>>>(p, c);
  return cudaGetLastError();
}
template <bool Ends>
cudaError_t launch(const Problem& p, const Chunks& c, cudaStream_t stream) {
  if (p.K == 64) return launch<64, 1, Ends>(p, c, stream);
  return by_halves(p) ? launch<128, 1, Ends>(p, c, stream) : launch<128, 2, Ends>(p, c, stream);
}

}  // namespace

cudaError_t chunk_reverse(const Problem& p, const Chunks& c, cudaStream_t stream) {
  if (c.segments.at) {
    if (const cudaError_t e = launch<true>(p, c, stream)) return e;
    if (const cudaError_t e = put_together(p, c.segments, true, stream)) return e;
  }
  return launch<false>(p, c, stream);
}

}  // namespace kda::cuda
