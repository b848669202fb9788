// chunk_forward_cuda.cu: the walk over the chunks of a document (chunk_cuda.h), forward. A block has one head and 64 or 128
// columns of its state; a warp has sixteen of them, as rows of the transposed state, in registers. All products are of what
// the warp has in registers with what the chunk brings in shared memory, so warps wait only for chunks:
//   X^T = V^T - S^T K+^T;  N^T = X^T (A diag(beta))^T;  O^T = S^T Q+^T + N^T P^T;  S^T <- S^T diag(c_last) + N^T Kr
// The sweep of the backward is the same walk, which keeps S and N and gives no O. Before either, where documents are cut, a walk
// that gives nothing but the state that leaves a segment.
#include "chunk_segments_cuda.h"
#include "chunk_stage_cuda.cuh"

namespace kda::cuda {
namespace {

enum class Pass { output, sweep, ends };

template <int D, int Groups, Pass pass>
__global__ void __launch_bounds__(Groups * 128, 1) forward_kernel(Problem p, Chunks chunks, int64_t blocks_of_kind) {
  constexpr bool Sweep = pass == Pass::sweep, Output = pass == Pass::output, Ends = pass == Pass::ends;
  using R = Record<D>;
  using X = Stage<D, Groups, Sweep, !Output>;
  extern __shared__ __align__(1024) unsigned char shared_raw[];
  uint64_t *full = reinterpret_cast<uint64_t*>(shared_raw + X::kBarriers), *empty = full + kStages;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
  const bool map = Ends && blockIdx.x >= blocks_of_kind;  // from the unit matrix, with no values
  const Walk w = walk_of(p, chunks.segments, map ? blockIdx.x - blocks_of_kind : blockIdx.x, D, X::kWidth);
  if (w.of == 0) return;
  if (Ends && (w.place == w.of - 1 || (map && w.place == 0))) return;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) barrier_init(&full[s], 1), barrier_init(&empty[s], Groups * 4);
    barrier_init_done();
  }
  __syncthreads();
  if (p.slot && w.lo >= w.hi) return;  // its slot number may be anything
  const int64_t value = w.v0 + warp * 16, matrix = ((p.slot ? p.slot[w.document] : w.document) * p.heads + w.h) * D * D;
  bf16* strips = reinterpret_cast<bf16*>(shared_raw + X::kStrips) + warp * kStages * kStrip;
  bf16* states = reinterpret_cast<bf16*>(shared_raw + X::kStates) + warp * 16 * D;  // sweep
  auto copy = [&](int i) {
    if (warp == 0) copy_record<D, X>(p, w, i, chunks.records, false, shared_raw, full, empty);
    copy_strip<D>(p, w, i, map ? nullptr : p.v, value, false, strips);
  };
  copy(0);
  float S[D / 2] = {};
  if (map)
    unit<D>(S, value);
  else if (w.place > 0 && !Ends)
    state<D, true>(S, chunks.segments.ends + ((w.segment - 1) * p.heads + w.h) * D * D, value);
  else if (w.place == 0 && p.s0)
    state<D, true>(S, p.s0 + matrix, value);
  for (int i = 0; i < w.chunks; ++i) {
    const unsigned char* stage = shared_raw + i % kStages * X::kSize;
    const int64_t t = w.lo + int64_t(i) * kChunk, number = (w.first + i) * p.heads + w.h;
    const int n = int(min(int64_t(kChunk), w.hi - t));
    bf16* strip = strips + i % kStages * kStrip;
    copy(i + 1);
    uint32_t s[D / 16][4], x[4][4];
#pragma unroll
    for (int k = 0; k < D / 16; ++k) operand(s[k], S, k);
    copy_wait<1>();
    barrier_wait(&full[i % kStages], i / kStages & 1);
    __syncwarp();

    float x_acc[32] = {}, o_acc[32] = {};
    pin(x_acc), pin(o_acc);
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < D / 16; ++k) wgmma<false>(x_acc, s[k], across(stage + R::kKin + k / 4 * R::kTile + k % 4 * 32));
    wgmma_commit();
    if constexpr (Output) {
#pragma unroll
      for (int k = 0; k < D / 16; ++k)
        wgmma<false>(o_acc, s[k], across(stage + R::kQin + k / 4 * R::kTile + k % 4 * 32));
      wgmma_commit();
    } else if constexpr (Sweep) {
      store_state<D>(s, states, static_cast<bf16*>(chunks.states) + number * D * D + value * 64);
    }
    wgmma_wait<Output ? 1 : 0>();
    pin(x_acc);
    float n_acc[32];  // starts as beta X, in float
    const float *beta = reinterpret_cast<const float*>(stage + R::kBeta) + 2 * (lane & 3), *own = beta + kChunk;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      load_strip(x[k], strip, k);
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        const float2 v = unpack(x[k][m]), b = *reinterpret_cast<const float2*>(beta + 16 * k + 8 * (m >> 1));
        const float x0 = v.x - x_acc[8 * k + 2 * m], x1 = v.y - x_acc[8 * k + 2 * m + 1];
        x[k][m] = pack(x0, x1);
        n_acc[8 * k + 2 * m] = b.x * x0, n_acc[8 * k + 2 * m + 1] = b.y * x1;
      }
    }
    pin(n_acc);

    wgmma_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k) wgmma<false>(n_acc, x[k], across(stage + R::kSolve + k * 32));
    wgmma_commit();
    const float* last = reinterpret_cast<const float*>(stage + R::kLast) + 2 * (lane & 3);
#pragma unroll
    for (int j = 0; j < D / 8; ++j) {
      const float2 c = *reinterpret_cast<const float2*>(last + 8 * j);
      S[4 * j] *= c.x, S[4 * j + 1] *= c.y, S[4 * j + 2] *= c.x, S[4 * j + 3] *= c.y;
    }
    wgmma_wait();
    pin(n_acc), pin(o_acc);
    uint32_t fresh[4][4];
#pragma unroll
    for (int k = 0; k < 4; ++k) operand(fresh[k], n_acc, k);
    if constexpr (Output) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float2 c = *reinterpret_cast<const float2*>(own + 8 * j);
#pragma unroll
        for (int m = 0; m < 4; ++m) o_acc[4 * j + m] += n_acc[4 * j + m] * (m & 1 ? c.y : c.x);
      }
      pin(o_acc);
    }

    pin(S);
    wgmma_begin();
#pragma unroll
    for (int k = 0; k < 4; ++k) wgmma<true>(S, fresh[k], along(stage + R::kKrest + k * 2048, R::kTile));
    wgmma_commit();
    if constexpr (Output) {
#pragma unroll
      for (int k = 0; k < 4; ++k) wgmma<false>(o_acc, fresh[k], across(stage + R::kPairs + k * 32));
      wgmma_commit();
    } else if constexpr (Sweep) {
      store_rows(fresh, strip, static_cast<bf16*>(chunks.values) + (t * p.heads + w.h) * D + value, p.heads * D, n);
    }
    wgmma_wait();
    pin(S), pin(o_acc);
    __syncwarp();
    if (lane == 0) barrier_arrive(&empty[i % kStages]);
    if (Output && p.o) {
      uint32_t o[4][4];
#pragma unroll
      for (int k = 0; k < 4; ++k) operand(o[k], o_acc, k);
      store_rows(o, strip, static_cast<bf16*>(p.o) + (t * p.heads + w.h) * D + value, p.heads * D, n);
    }
  }
  if constexpr (Sweep) bulk_store_wait();
  const int64_t kept = (w.segment * p.heads + w.h) * D * D;
  if (Ends) state<D, false>(S, (map ? chunks.segments.maps : chunks.segments.ends) + kept, value);
  // With slots the state may lie where another block still reads its start: deliver() brings it there.
  if (Output && p.state && w.place == w.of - 1)
    state<D, false>(S, p.slot && w.of > 1 ? chunks.segments.ends + kept : p.state + matrix, value);
}

// States of cut documents to their slots.
template <int D>
__global__ void __launch_bounds__(256) deliver(Problem p, Segments s) {
  const int64_t i = blockIdx.x / p.heads, h = blockIdx.x % p.heads;
  if (i >= *s.count || s.at[i].of == 1 || s.at[i].place < s.at[i].of - 1) return;
  const float4* from = reinterpret_cast<const float4*>(s.ends + (i * p.heads + h) * D * D);
  float4* to = reinterpret_cast<float4*>(p.state + (p.slot[s.at[i].document] * p.heads + h) * D * D);
  for (int x = threadIdx.x; x < D * D / 4; x += 256) to[x] = from[x];
}

template <int D, int Groups, Pass pass>
cudaError_t launch(const Problem& p, const Chunks& c, cudaStream_t stream) {
  using X = Stage<D, Groups, pass == Pass::sweep, pass != Pass::output>;
  const int64_t kind = (pass == Pass::ends ? segment_budget(p) * p.heads : walks(p)) * (D / X::kWidth),
                blocks = pass == Pass::ends ? 2 * kind : kind;
  cudaFuncSetAttribute(forward_kernel<D, Groups, pass>, cudaFuncAttributeMaxDynamicSharedMemorySize, X::kTotal);
  if (blocks) forward_kernel<D, Groups, pass><<<unsigned(blocks), X::kThreads, X::kTotal, stream>>>(p, c, kind);
  if (pass == Pass::output && p.slot && p.state && c.segments.at)
    deliver<D><<<unsigned(segment_budget(p) * p.heads), 256, 0, stream>>>(p, c.segments);
  return cudaGetLastError();
}
template <Pass pass>
cudaError_t launch(const Problem& p, const Chunks& c, cudaStream_t stream) {
  if (p.K == 64) return launch<64, 1, pass>(p, c, stream);
  // One block to a multiprocessor: half the columns to a block while there are enough multiprocessors for both halves.
  return by_halves(p) ? launch<128, 1, pass>(p, c, stream) : launch<128, 2, pass>(p, c, stream);
}

}  // namespace

cudaError_t chunk_forward(const Problem& p, const Chunks& c, cudaStream_t stream) {
  return launch<Pass::output>(p, c, stream);
}
cudaError_t chunk_sweep(const Problem& p, const Chunks& c, cudaStream_t stream) {
  return launch<Pass::sweep>(p, c, stream);
}
cudaError_t chunk_starts(const Problem& p, const Chunks& c, cudaStream_t stream) {
  if (!c.segments.at) return cudaSuccess;
  if (const cudaError_t e = cut_documents(p, c.segments, stream)) return e;
  if (const cudaError_t e = launch<Pass::ends>(p, c, stream)) return e;
  return put_together(p, c.segments, false, stream);
}

}  // namespace kda::cuda
