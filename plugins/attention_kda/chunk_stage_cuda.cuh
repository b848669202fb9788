// chunk_stage_cuda.cuh: how the kernels that walk a document get their chunks: the first warp has a chunk's record copied into a
// stage of shared memory while all work on the chunk before (a warp of its own for that would take registers from a third of
// the others). Of 64 rows of v or do every warp copies its own sixteen columns; nobody else needs them.
#pragma once
#include <type_traits>

#include "chunk_cuda.cuh"

namespace kda::cuda {

constexpr int kStages = 2;

constexpr int kStripRow = 24, kStrip = kChunk * kStripRow;  // elements: a warp's sixteen columns of 64 rows

// Groups: warpgroups, each with 64 columns of the state. Keeps: states go to memory. Short: the part that the sweep needs.
template <int D, int Groups, bool Keeps, bool Short>
struct Stage {
  static constexpr int kWidth = 64 * Groups, kThreads = 128 * Groups;  // columns of the state, a block
  static constexpr int kSize = Short ? Record<D>::kQin : Record<D>::kSize;
  static constexpr int kBytes = Short ? Record<D>::kSweep : kSize;  // that are copied
  static constexpr int kStrips = kStages * kSize;  // [warps, kStages, kStrip]: of v or do, then of what goes out
  static constexpr int kStates = kStrips + 4 * Groups * kStages * kStrip * 2;  // [warps, 16, D]: on their way out
  static constexpr int kBarriers = kStates + (Keeps ? 4 * Groups * 16 * D * 2 : 0);
  static constexpr int kTotal = kBarriers + 2 * kStages * 8;
  static_assert(kSize % 1024 == 0);
};

// Whether blocks take half of 128 columns: two halves are done sooner while both find a multiprocessor of their own. How many
// documents are used is known on the device alone; few are shorter than some thousand tokens where many would fit.
constexpr int64_t kMultiprocessors = 132;
inline bool by_halves(const Problem& p) {
  const int64_t used = (p.tokens + 4095) / 4096;
  return (p.documents < used ? p.documents : used) * p.heads <= kMultiprocessors / 2;
}
// How many segments of all heads fill the card; 0: documents are not cut.
constexpr int64_t kLeast = 16;  // chunks of a segment
inline int64_t segment_budget(const Problem& p) {
  const int64_t slices = p.K == 128 && by_halves(p) ? 2 : 1, fill = kMultiprocessors / (p.heads * slices),
                budget = min(fill, p.tokens / (kChunk * kLeast));
  return budget < 2 ? 0 : budget;
}

// One segment and head, and 64 Groups columns from v0 on.
struct Walk {
  int64_t document, h, v0, lo, hi, first;  // first: number of its first chunk
  int64_t segment;                         // its number
  int chunks, place, of;                   // of 0: there is no such segment
};
__device__ inline Walk walk_of(const Problem& p, const Segments& s, int64_t block, int D, int width) {
  const int slices = D / width;
  const int64_t pair = block / slices, i = pair / p.heads;
  Walk w{i, pair % p.heads, int64_t(block % slices) * width, 0, 0, 0, i, 0, 0, 1};
  if (s.at) {
    if (i >= *s.count) return w.of = 0, w;
    const Segment g = s.at[i];
    w.document = g.document, w.lo = g.lo, w.hi = g.hi, w.first = g.first, w.place = g.place, w.of = g.of;
  } else {
    if (i >= p.documents) return w.of = 0, w;
    w.lo = p.cu[i], w.hi = p.cu[i + 1], w.first = w.lo / kChunk + i;
  }
  w.chunks = int((w.hi - w.lo + kChunk - 1) / kChunk);
  return w;
}
inline int64_t walks(const Problem& p) { return (p.documents + segment_budget(p)) * p.heads; }

// Step i of the walk goes to stage i % kStages; called by the first warp. Chunks come in order, or from the last to the first.
template <int D, class Stage>
__device__ inline void copy_record(const Problem& p, const Walk& w, int i, const unsigned char* records, bool backwards,
                                   unsigned char* shared, uint64_t* full, uint64_t* empty) {
  if (i >= w.chunks) return;
  const int stage = i % kStages, c = backwards ? w.chunks - 1 - i : i;
  if (i >= kStages) barrier_wait(&empty[stage], (i / kStages - 1) & 1);
  if ((threadIdx.x & 31) == 0) {
    barrier_expect(&full[stage], Stage::kBytes);
    bulk_copy(shared + stage * Stage::kSize, records + ((w.first + c) * p.heads + w.h) * Record<D>::kSize,
              Stage::kBytes, &full[stage]);
  }
  __syncwarp();
}
// A warp's strip of v or do at that step; rows past the document's end become zero. `rows` may be null.
template <int D>
__device__ inline void copy_strip(const Problem& p, const Walk& w, int i, const void* rows, int64_t column,
                                  bool backwards, bf16* strips) {
  const int lane = threadIdx.x & 31, c = backwards ? w.chunks - 1 - i : i;
  const int64_t t = w.lo + int64_t(c) * kChunk;
  const int n = rows && i < w.chunks ? int(min(int64_t(kChunk), w.hi - t)) : 0;
  bf16* to = strips + i % kStages * kStrip;
  __syncwarp();
#pragma unroll
  for (int x = 0; x < 4; ++x) {
    const int r = 16 * x + lane / 2, part = (lane & 1) * 8;
    copy16(to + r * kStripRow + part,
           r < n ? static_cast<const bf16*>(rows) + ((t + r) * p.heads + w.h) * D + column + part : p.q, r < n);
  }
  copy_commit();
}

// Two neighbouring groups of eight tokens, from 16 i on, of a strip, transposed: the registers of an A fragment [16 columns,
// 16 tokens].
__device__ inline void load_strip(uint32_t (&x)[4], const bf16* strip, int i) {
  const int lane = threadIdx.x & 31;
  load_transposed(x, strip + (16 * i + (lane >> 4) * 8 + (lane & 7)) * kStripRow + (lane >> 3 & 1) * 8);
}

// The registers of A from an accumulator [16, 16 i .. 16 i + 16).
template <int N>
__device__ inline void operand(uint32_t (&a)[4], const float (&d)[N], int i) {
#pragma unroll
  for (int m = 0; m < 4; ++m) a[m] = pack(d[8 * i + 2 * m], d[8 * i + 2 * m + 1]);
}

// A warp's [16 columns, 64 tokens], as operands, through its strip to rows of memory `row` elements apart. There are n >= 1
// tokens; the last is written again for those past it, since products may be in flight and a branch would wait for them.
__device__ inline void store_rows(const uint32_t (&x)[4][4], bf16* strip, bf16* to, int64_t row, int n) {
  const int lane = threadIdx.x & 31;
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 4; ++i)
    store_transposed(strip + (16 * i + (lane >> 4) * 8 + (lane & 7)) * kStripRow + (lane >> 3 & 1) * 8, x[i][0],
                     x[i][1], x[i][2], x[i][3]);
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int t = min(16 * i + lane / 2, n - 1), c = (lane & 1) * 8;
    *reinterpret_cast<uint4*>(to + t * row + c) = *reinterpret_cast<const uint4*>(strip + t * kStripRow + c);
  }
}

// A warp's 16 rows of a transposed state [D, D], as operands, through shared memory to memory: rows of D / 64 tiles [D, 64].
// `to`: those of the first tile.
template <int D>
__device__ inline void store_state(const uint32_t (&s)[D / 16][4], bf16* shared, bf16* to) {
  const int lane = threadIdx.x & 31, row = (lane >> 3 & 1) * 8 + (lane & 7);
  bulk_store_wait();
#pragma unroll
  for (int i = 0; i < D / 16; ++i)
    store_matrices(shared + i / 4 * 1024 + swizzle(row, (i % 4 * 2 + (lane >> 4)) * 8), s[i][0], s[i][1], s[i][2],
                   s[i][3]);
#pragma unroll
  for (int tile = 0; tile < D / 64; ++tile) bulk_store(to + tile * D * 64, shared + tile * 1024, 2048);
}

// A thread's part of the transposed state, from or to float [D (key), D (value)]; `value`: the warp's first column.
template <int D, bool Load>
__device__ inline void state(float (&S)[D / 2], std::conditional_t<Load, const float, float>* memory, int64_t value) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int j = 0; j < D / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      auto& x = memory[(8 * j + 2 * (lane & 3) + (e & 1)) * D + value + (lane >> 2) + (e >> 1) * 8];
      if constexpr (Load)
        S[4 * j + e] = x;
      else
        x = S[4 * j + e];
    }
}

// The same of the unit matrix.
template <int D>
__device__ inline void unit(float (&S)[D / 2], int64_t value) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int j = 0; j < D / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      S[4 * j + e] = 8 * j + 2 * (lane & 3) + (e & 1) == value + (lane >> 2) + (e >> 1) * 8 ? 1 : 0;
}

}  // namespace kda::cuda
