// grouped_kernel.cuh: grouped products on the tensor cores. A cluster of two CTAs works on two tiles of 128 x Cols at a time
// that share one operand. In a CTA one thread keeps several stages of operands on their way with the copy engine, half of the
// shared operand for both CTAs, and two warpgroups multiply 64 x Cols each. Grids are persistent; offsets are read here only.
#pragma once
#include <cuda_bf16.h>

#include "grouped_store.cuh"
#include "grouped_wgmma.h"

namespace kb::cuda {
namespace {  // one copy a translation unit: each holds other instances

using namespace hopper;

constexpr int kThreads = 384, kMostStages = 6;
constexpr uint32_t kBox = kBoxSide * kBoxSide * 2;  // 64 x 64 bf16: all operands move in such boxes

template <int Cols>
struct Ring {  // of stages: two boxes of a, then those of b
  static constexpr uint32_t kA = 2 * kBox, kBoxesB = (Cols + kBoxSide - 1) / kBoxSide, kStage = kA + kBoxesB * kBox;
  static constexpr uint32_t kHalfB = (kBoxesB + 1) / 2;  // boxes of b that the first of two takes
  static constexpr int kStages = int(24 * kBox / kStage);
  static constexpr uint32_t kShared = kStages * kStage + 2 * kStaging + 1024;  // aligned to the swizzle's 1024 inside

  // Position, and the parity of its round.
  uint32_t at = 0, parity = 0;
  __device__ void advance() {
    if (++at == kStages) at = 0, parity ^= 1;
  }
};
struct Barriers {
  uint64_t full[kMostStages], empty[kMostStages];
};

template <int Cols, bool BTurned, bool Outer>
__device__ void produce(const CUtensorMap& a, const CUtensorMap& b, uint32_t stages, Barriers& bar, TileReader tiles,
                        uint32_t rank) {
  using R = Ring<Cols>;
  Tile t;
  R slot;
  while (tiles.next<false>(t)) {
    const int z = Outer ? 0 : t.expert;
    for (int k = 0; k < t.k_blocks; ++k, slot.advance()) {
      const uint32_t to = stages + slot.at * R::kStage, full = shared_address(&bar.full[slot.at]);
      const int depth = (Outer ? t.begin : 0) + k * kBoxSide;
      barrier_wait(shared_address(&bar.empty[slot.at]), slot.parity ^ 1);
      barrier_expect(full, R::kStage);
      const auto ax = [&](uint32_t box) { return Outer ? t.m + int(box) * kBoxSide : depth; };
      const auto ay = [&](uint32_t box) { return Outer ? depth : t.begin + t.m + int(box) * kBoxSide; };
      const auto bx = [&](uint32_t box) { return BTurned ? t.n + int(box) * kBoxSide : depth; };
      const auto by = [&](uint32_t box) { return BTurned ? depth : t.n + int(box) * kBoxSide; };
      if (t.share_a) {
        load_to_all(to + rank * kBox, &a, ax(rank), ay(rank), 0, full, 3);
        for (uint32_t i = 0; i < R::kBoxesB; ++i) load(to + R::kA + i * kBox, &b, bx(i), by(i), z, full);
      } else {
        for (uint32_t i = 0; i < 2; ++i) load(to + i * kBox, &a, ax(i), ay(i), 0, full);
        for (uint32_t i = rank * R::kHalfB; i < (rank ? R::kBoxesB : R::kHalfB); ++i)
          load_to_all(to + R::kA + i * kBox, &b, bx(i), by(i), z, full, 3);
      }
    }
  }
}

// Rows of y that no segment holds become zero, by 64 threads of the producer's warpgroup.
__device__ inline void clear_outside(const GroupedWork& g, int thread) {
  const int64_t row = g.n / 8, head = g.offsets[0] * row, tail = g.offsets[g.experts] * row;
  const int64_t first = int64_t(blockIdx.x) * 64 + thread, step = int64_t(gridDim.x) * 64;
  auto* y = static_cast<uint4*>(g.y);
  for (int64_t i = first; i < head; i += step) y[i] = uint4{};
  for (int64_t i = tail + first; i < g.rows * row; i += step) y[i] = uint4{};
}

// Depths from `left` on belong to another expert: those of this warpgroup's half of both operands become zero.
template <int Cols>
__device__ void clear_depths(uint32_t stage, int group, int left) {
  using R = Ring<Cols>;
  const int chunks = (kBoxSide - left) * 8;  // of 16 bytes; the swizzle moves them inside their row only
  const int boxes = 1 + int(group ? R::kBoxesB - R::kHalfB : R::kHalfB);
  for (int i = int(threadIdx.x % 128); i < boxes * chunks; i += 128) {
    const int which = i / chunks, chunk = i % chunks;
    const uint32_t box = which == 0 ? uint32_t(group) : 2 + uint32_t(group) * R::kHalfB + uint32_t(which - 1);
    asm volatile(
        "st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(stage + box * kBox + uint32_t(left * 128 + chunk * 16)), "r"(0)
        : "memory");
  }
  fence_async();
  named_sync(1, 256);
}

__device__ inline void release(Barriers& bar, uint32_t at) {  // to both CTAs: each fills half of the other's stage
  const uint32_t lane = threadIdx.x % 32;
  if (lane < 2) barrier_arrive_at(shared_address(&bar.empty[at]), lane);
}

template <int Cols, bool ATurned, bool BTurned, bool Outer>
__device__ void multiply(const Tile& t, uint32_t stages, Barriers& bar, Ring<Cols>& slot, int group, float (&d)[128]) {
  using R = Ring<Cols>;
  // k advances by 16: 32 bytes inside a row, or two groups of 8 rows
  constexpr uint64_t kStepA = (ATurned ? 2048 : 32) >> 4, kStepB = (BTurned ? 2048 : 32) >> 4;
  uint32_t before = 0;
  for (int k = 0; k < t.k_blocks; ++k, slot.advance()) {
    const uint32_t stage = stages + slot.at * R::kStage;
    barrier_wait(shared_address(&bar.full[slot.at]), slot.parity);
    if constexpr (Outer)
      if (t.count - k * kBoxSide < kBoxSide) clear_depths<Cols>(stage, group, t.count - k * kBoxSide);
    const uint64_t a = descriptor(stage + uint32_t(group) * kBox, kBox, 1024),
                   b = descriptor(stage + R::kA, kBox, 1024);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < 4; ++s) wgmma<Cols, ATurned, BTurned>(d, a + s * kStepA, b + s * kStepB, k > 0 || s > 0);
    wgmma_commit();
    if (k > 0) {
      wgmma_wait<1>();
      release(bar, before);
    }
    before = slot.at;
  }
  wgmma_wait<0>();
  if (t.k_blocks > 0) release(bar, before);
}

template <int Cols, bool ATurned, bool BTurned, bool Outer, class Out>
__device__ void consume(const Target& to, uint32_t stages, Barriers& bar, TileReader tiles) {
  Tile t;
  Ring<Cols> slot;
  float d[128];
  while (tiles.next<true>(t)) {
    if (t.k_blocks == 0)
#pragma unroll
      for (float& x : d) x = 0;
    if (sizeof(Out) == 2 && to.g.add && t.valid) fetch_old<Outer, Cols>(to.g, t, to.group);
    multiply<Cols, ATurned, BTurned, Outer>(t, stages, bar, slot, to.group, d);
    if (t.valid) store<Outer, Cols, Out>(to, t, d);
  }
  if (sender()) store_wait_read();
}

template <int Cols, bool ATurned, bool BTurned, bool Outer, class Out>
__global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(kThreads, 1)
    grouped(const GroupedWork g, const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
            const __grid_constant__ CUtensorMap y, const __grid_constant__ CUtensorMap rest) {
  extern __shared__ uint8_t shared[];
  __shared__ Barriers bar;
  __shared__ TileRing ring;
  __shared__ uint16_t order[Outer ? kSorted : 1];
  using R = Ring<Cols>;
  const uint32_t stages = (shared_address(shared) + 1023) / 1024 * 1024, rank = cluster_rank();
  const uint32_t staging = stages + R::kStages * R::kStage;
  const int group = int(threadIdx.x) / 128;
  if (threadIdx.x == 0) {
    prefetch(&a), prefetch(&b), prefetch(&y);
    for (int i = 0; i < R::kStages; ++i) {
      barrier_init(shared_address(&bar.full[i]), 1);
      barrier_init(shared_address(&bar.empty[i]), 16);  // eight warps of each CTA
    }
    ring.init(9);  // the producer and eight warps
    barrier_init_done();
  }
  if constexpr (Outer) {  // counts lie where results will
    auto* counts = reinterpret_cast<int*>(shared + (staging - shared_address(shared)));
    sort_experts(g, counts, order, int(threadIdx.x), kThreads);
  }
  __syncthreads();
  cluster_sync();
  const TileReader tiles(ring);
  if (group == 2) {
    fewer_registers<40>();
    if (threadIdx.x == 256) produce<Cols, BTurned, Outer>(a, b, stages, bar, tiles, rank);
    if (threadIdx.x == 288) {
      TileList<Outer, Cols> list(g, Outer && g.experts <= kSorted ? order : nullptr, int(blockIdx.x / 2),
                                 int(gridDim.x / 2), int(rank));
      ring.fill(list);
    }
    if constexpr (!Outer)
      if (threadIdx.x >= 320 && !g.add) clear_outside(g, int(threadIdx.x) - 320);
    __syncwarp();
  } else {
    more_registers<232>();
    const Target to{g, y, rest, staging + uint32_t(group) * kStaging, group};
    consume<Cols, ATurned, BTurned, Outer, Out>(to, stages, bar, tiles);
  }
  cluster_sync();  // no CTA ends while the other still writes to it
}

struct GroupedKernel {
  void (*run)(GroupedWork, CUtensorMap, CUtensorMap, CUtensorMap, CUtensorMap);
  uint32_t shared;
};
template <bool ATurned, bool BTurned, bool Outer, class Out>
GroupedKernel kernel_of(int cols) {
  switch (cols) {
    case 128:
      return {grouped<128, ATurned, BTurned, Outer, Out>, Ring<128>::kShared};
    case 192:
      return {grouped<192, ATurned, BTurned, Outer, Out>, Ring<192>::kShared};
    case 224:
      return {grouped<224, ATurned, BTurned, Outer, Out>, Ring<224>::kShared};
    case 240:
      return {grouped<240, ATurned, BTurned, Outer, Out>, Ring<240>::kShared};
    default:
      return {grouped<256, ATurned, BTurned, Outer, Out>, Ring<256>::kShared};
  }
}

inline cudaError_t prepare(const GroupedKernel& k) {
  return cudaFuncSetAttribute(k.run, cudaFuncAttributeMaxDynamicSharedMemorySize, int(k.shared));
}
inline cudaError_t launch(const GroupedKernel& k, GroupedWork g, const GroupedMaps& m, int multiprocessors,
                          cudaStream_t stream) {
  g.across = (g.n + m.cols - 1) / m.cols;
  k.run<<<unsigned(multiprocessors / 2 * 2), kThreads, k.shared, stream>>>(g, m.a, m.b, m.y, m.rest);
  return cudaGetLastError();
}

}  // namespace
}  // namespace kb::cuda
