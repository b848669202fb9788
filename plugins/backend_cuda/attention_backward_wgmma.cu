// attention_backward_wgmma.cu: the gradients of attention for sm_90a, bf16, the same bits every run. As in
// attention_backward_bf16.cu two passes make P and dS again from lse, and both are one kernel: `mine` are the 128 rows of
// a tile (queries for dq, keys for dk and dv), `other` the rows it walks over, 64 a step. A block takes tiles until none is
// left. One warp feeds the copy engine, also with the next tile while gradients are written; two warpgroups own 64 rows each. P
// and dS come out of the products in the layout in which the next product takes them from registers, so they never go through
// memory; while one warpgroup takes exponentials the other multiplies.
#include "attention_device.cuh"
#include "attention_mma.cuh"
#include "attention_wgmma.cuh"
#include "attention_wgmma.h"

namespace kb::cuda {
namespace {

constexpr int kThreads = 384, kMine = 128, kOther = 64;  // threads: 128 for the copy engine, two warpgroups

template <int D, int E>
struct Layout {  // of shared memory, in bytes from a multiple of 1024
  static constexpr int kBoxes = D / 64 + E / 64, kStages = D + E > 256 ? 3 : 4;
  static constexpr int kMineAt = 0;                                   // [2 warpgroups][kBoxes]
  static constexpr int kStageAt = 2 * kBoxes * kBox;                  // [kStages][kBoxes]
  static constexpr int kRowsAt = kStageAt + kStages * kBoxes * kBox;  // [kStages][2][kOther] floats: lse, delta
  static constexpr int kBarrierAt = kRowsAt + kStages * 2 * kOther * 4;
  static constexpr int kBytes = kBarrierAt + (2 * kStages + 3) * 8 + 16 + 1024;
};

template <int N>
__device__ void store(bf16* to, int64_t stride, int rows, const float (&acc)[N], float scale) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int at = warp * 16 + lane / 4 + r * 8;
    if (at >= rows) continue;
#pragma unroll
    for (int n = 0; n < N / 4; ++n)
      *reinterpret_cast<uint32_t*>(to + at * stride + n * 8 + (lane & 3) * 2) =
          pack(acc[4 * n + 2 * r] * scale, acc[4 * n + 2 * r + 1] * scale);
  }
}
template <int N>
__device__ void clear(float (&x)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) x[i] = 0;
}

struct Walk {  // rows of the document that a tile walks over, in steps of kOther, once for each of `times` heads
  int from, to, steps;
};
template <bool kKeys>
__device__ Walk walk_of(const AttentionShape& s, const AttentionTile& t) {
  const int length = t.end - t.begin, index = t.row - t.begin;
  Walk w;
  w.from = kKeys && s.causal ? index : 0, w.to = !kKeys && s.causal ? min(index + kMine, length) : length;
  w.steps = (w.to - w.from + kOther - 1) / kOther * (kKeys ? int(s.heads / s.groups) : 1);
  return w;
}
__device__ void zero_rows(bf16* to, const AttentionTile& t, int heads, int head, int width) {
  const int rows = min(kMine, t.end - t.row);
  for (int i = int(threadIdx.x) - 128; to && i < rows * width; i += 256)
    to[((int64_t(t.row) + i / width) * heads + head) * width + i % width] = __float2bfloat16(0.f);
}

// kAhead: the last product of a step is still under way when the next step begins.
template <int D, int E, bool kKeys, bool kAhead>
__global__ void __launch_bounds__(kThreads, 1)
    backward(const __grid_constant__ CUtensorMap mine_d, const __grid_constant__ CUtensorMap mine_e,
             const __grid_constant__ CUtensorMap other_d, const __grid_constant__ CUtensorMap other_e,
             const AttentionBackwardArgs a, const float* __restrict__ lse, const float* __restrict__ delta,
             const AttentionTiles tiles) {
  using L = Layout<D, E>;
  extern __shared__ char memory[];
  const int heads = int(a.s.heads), mine_heads = int(kKeys ? a.s.groups : a.s.heads), each = heads / int(a.s.groups);
  const uint32_t base = (hopper::shared_address(memory) + 1023) & ~1023u;
  float* row_values = reinterpret_cast<float*>(memory + (base - hopper::shared_address(memory)) + L::kRowsAt);
  const uint32_t full = base + L::kBarrierAt, empty = full + 8 * L::kStages, ready = empty + 8 * L::kStages,
                 finished = ready + 8, tail_in = finished + 8;
  volatile int* work_of = reinterpret_cast<volatile int*>(memory + (tail_in + 8 - hopper::shared_address(memory)));
  if (threadIdx.x == 0) {
    for (int i = 0; i < L::kStages; ++i) hopper::barrier_init(full + 8 * i, 1), hopper::barrier_init(empty + 8 * i, 2);
    hopper::barrier_init(ready, 1);
    hopper::barrier_init(finished, 2);
    hopper::barrier_init(tail_in, 1);
    hopper::barrier_init_done();
  }
  __syncthreads();

  if (threadIdx.x < 128) {  // ---- the copy engine's feeder
    hopper::fewer_registers<kKeys ? 24 : 40>();
    if (threadIdx.x >= 32) return;
    const int lane = threadIdx.x, total = *tiles.count * mine_heads;
    int work = lane == 0 ? atomicAdd(tiles.next, 1) : 0;
    for (int turn = 0, it = 0, tails = 0;; ++turn) {
      work = __shfl_sync(~0u, work, 0);
      if (turn) hopper::barrier_wait(finished, (turn - 1) & 1);
      if (lane == 0) *work_of = work < total ? work : -1;
      if (work >= total) {
        if (lane == 0) hopper::barrier_arrive_at(ready, 0);
        return;
      }
      const AttentionTile t = tiles.tile[work / mine_heads];
      const int head = work % mine_heads;
      if (lane == 0) work = atomicAdd(tiles.next, 1);
      if (t.kind) {
        if (lane == 0) hopper::barrier_arrive_at(ready, 0);
        continue;
      }
      if (lane == 0) {
        hopper::barrier_expect(ready, 2 * L::kBoxes * kBox);
        for (int w = 0; w < 2; ++w)
#pragma unroll 1
          for (int b = 0; b < L::kBoxes; ++b) {
            const bool in_d = b < D / 64;
            hopper::load(base + L::kMineAt + (w * L::kBoxes + b) * kBox, in_d ? &mine_d : &mine_e,
                         in_d ? head * D + b * 64 : head * E + b * 64 - D, t.row + w * 64, 0, ready);
          }
      }
      const Walk w = walk_of<kKeys>(a.s, t);
      int h = kKeys ? head * each : head / each, x = w.from;
      for (int step = 0; step < w.steps; ++step, ++it) {
        const int stage = it % L::kStages, row = t.begin + x;
        if (it >= L::kStages) hopper::barrier_wait(empty + 8 * stage, (it / L::kStages - 1) & 1);
        if (kKeys) {
          float* values = row_values + stage * 2 * kOther;
          for (int i = lane; i < kOther; i += 32) {
            const bool in = row + i < t.end;
            values[i] = in ? lse[int64_t(h) * a.s.tokens + row + i] : 0.f;
            values[kOther + i] = in ? delta[int64_t(h) * a.s.tokens + row + i] : 0.f;
          }
          __syncwarp();
        }
        const bool tail = row + kOther > t.end;
        const uint32_t to = base + L::kStageAt + stage * L::kBoxes * kBox, arrived = tail ? tail_in : full + 8 * stage;
        if (lane == 0) {
          hopper::barrier_expect(arrived, L::kBoxes * kBox);
#pragma unroll 1
          for (int b = 0; b < L::kBoxes; ++b) {
            const bool in_d = b < D / 64;
            hopper::load(to + b * kBox, in_d ? &other_d : &other_e, in_d ? h * D + b * 64 : h * E + b * 64 - D, row, 0,
                         arrived);
          }
        }
        if (tail) {
          hopper::barrier_wait(tail_in, tails++ & 1);
          clear_rows(memory + (to - hopper::shared_address(memory)), L::kBoxes, kOther, t.end - row);
          if (lane == 0) hopper::barrier_arrive_at(full + 8 * stage, 0);
        }
        if ((x += kOther) >= w.to) x = w.from, ++h;
      }
    }
  }

  // ---- a warpgroup: 64 rows of each tile
  hopper::more_registers<kKeys ? 240 : 232>();
  const int group = int(threadIdx.x >> 7) - 1, lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
  const uint32_t my_d = base + L::kMineAt + group * L::kBoxes * kBox, my_e = my_d + D / 64 * kBox;
  const float scale = a.s.scale * kLog2E;
  const auto arrive = [&](uint32_t barrier, bool twice) {
    if ((threadIdx.x & 127) != 0) return;
    hopper::barrier_arrive_at(barrier, 0);
    if (twice) hopper::barrier_arrive_at(barrier, 0);
  };
  // With 320 columns of gradients there is no room for P and dP side by side: dP comes after the exponentials, and P lives
  // on as bf16 only.
  constexpr bool kLate = kKeys && D + E > 256;
  for (int turn = 0, it = 0;; ++turn) {
    hopper::barrier_wait(ready, turn & 1);
    const int work = *work_of;
    if (work < 0) return;
    const int head = work % mine_heads;
    const AttentionTile t = tiles.tile[work / mine_heads];
    const int start = t.row - t.begin + group * 64, length = t.end - t.begin;  // my rows are [start, start + 64)
    if (t.kind) {
      warpgroup_sync(group);
      arrive(finished, false);
      zero_rows(static_cast<bf16*>(kKeys ? a.dk : a.dq), t, mine_heads, head, D);
      if (kKeys) zero_rows(static_cast<bf16*>(a.dv), t, mine_heads, head, E);
      continue;
    }
    const Walk w = walk_of<kKeys>(a.s, t);
    if (start >= length) {
      warpgroup_sync(group);
      arrive(finished, false);
      it += w.steps;
      continue;
    }
    const bool alone = t.row - t.begin + 64 >= length;  // the other warpgroup has no rows: its arrivals are mine
    const int my_row = start + warp * 16 + lane / 4;    // and my_row + 8
    float my_lse[2] = {0, 0}, my_delta[2] = {0, 0};
    if (!kKeys)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        if (my_row + r * 8 < length) {
          my_lse[r] = lse[int64_t(head) * a.s.tokens + t.begin + my_row + r * 8];
          my_delta[r] = delta[int64_t(head) * a.s.tokens + t.begin + my_row + r * 8];
        }
    float acc_d[D / 2], acc_e[kKeys ? E / 2 : 32];
    clear(acc_d);
    if (kKeys) clear(acc_e);
    int behind = -1;  // the stage whose last product may still be under way
#pragma unroll 1
    for (int end = it + w.steps, x = w.from; it < end; ++it) {
      const int stage = it % L::kStages;
      const uint32_t tile_d = base + L::kStageAt + stage * L::kBoxes * kBox, tile_e = tile_d + D / 64 * kBox;
      hopper::barrier_wait(full + 8 * stage, it / L::kStages & 1);
      const bool skip = a.s.causal && (kKeys ? x < start : x > start);
      if (!skip) {
        float s[32], dp[32];
        hopper::wgmma_fence();
#pragma unroll
        for (int i = 0; i < D / 16; ++i)
          multiply_rows(s, rows_operand(my_d + i / 4 * kBox, i & 3), rows_operand(tile_d + i / 4 * kBox, i & 3), i > 0);
        hopper::wgmma_commit();
        const auto multiply_dp = [&] {
#pragma unroll
          for (int i = 0; i < E / 16; ++i)
            multiply_rows(dp, rows_operand(my_e + i / 4 * kBox, i & 3), rows_operand(tile_e + i / 4 * kBox, i & 3),
                          i > 0);
          hopper::wgmma_commit();
        };
        if constexpr (!kLate) multiply_dp();
        hopper::wgmma_wait<kLate ? 0 : 1>();
        settle(s);
        if (kAhead && behind >= 0) arrive(empty + 8 * behind, alone);
        const float* values = row_values + stage * 2 * kOther + (lane & 3) * 2;
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          float2 l = make_float2(0, 0);
          if (kKeys) l = *reinterpret_cast<const float2*>(values + n * 8);
#pragma unroll
          for (int i = 0; i < 4; ++i)
            s[4 * n + i] = exp2f(s[4 * n + i] * scale - (kKeys ? (i & 1 ? l.y : l.x) : my_lse[i / 2]));
        }
        if (x + kOther > length || (a.s.causal && x == start)) {
#pragma unroll
          for (int r = 0; r < 2; ++r) {  // others that a row meets, from this lane's first column on
            const int mine = my_row + r * 8, lane_at = x + (lane & 3) * 2;
            const int first = (kKeys && a.s.causal ? mine : 0) - lane_at;
            const int last = (!kKeys && a.s.causal ? min(length, mine + 1) : length) - lane_at;
#pragma unroll
            for (int n = 0; n < 8; ++n)
#pragma unroll
              for (int i = 0; i < 2; ++i)
                if (n * 8 + i < first || n * 8 + i >= last) s[4 * n + 2 * r + i] = 0;
          }
        }
        uint32_t p[4][4] = {};
        if (kKeys) {
#pragma unroll
          for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) p[j][i] = pack(s[8 * j + 2 * i], s[8 * j + 2 * i + 1]);
          hopper::wgmma_fence();
          if constexpr (kLate) multiply_dp();
#pragma unroll
          for (int j = 0; j < 4; ++j)
            if constexpr (kKeys) multiply_columns(acc_e, p[j], columns_operand(tile_e, j));
          hopper::wgmma_commit();
          hopper::wgmma_wait<1>();
        } else {
          settle(s);  // before the wait: dP is under way
          hopper::wgmma_wait<0>();
        }
        settle(dp);
        uint32_t ds[4][4];
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          float2 del = make_float2(0, 0);
          if (kKeys) del = *reinterpret_cast<const float2*>(values + kOther + n * 8);
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            const uint32_t both = p[n / 2][(n & 1) * 2 + r];
            const float p_low = kLate ? __uint_as_float(both << 16) : s[4 * n + 2 * r];
            const float p_high = kLate ? __uint_as_float(both & 0xffff0000u) : s[4 * n + 2 * r + 1];
            const float low = p_low * (dp[4 * n + 2 * r] - (kKeys ? del.x : my_delta[r]));
            const float high = p_high * (dp[4 * n + 2 * r + 1] - (kKeys ? del.y : my_delta[r]));
            ds[n / 2][(n & 1) * 2 + r] = pack(low, high);
          }
        }
        hopper::wgmma_fence();
#pragma unroll
        for (int j = 0; j < 4; ++j) multiply_columns(acc_d, ds[j], columns_operand(tile_d, j));
        hopper::wgmma_commit();
        if (kAhead) {
          behind = stage;
        } else {
          hopper::wgmma_wait<0>();
          arrive(empty + 8 * stage, alone);
        }
      } else {
        warpgroup_sync(group);
        arrive(empty + 8 * stage, alone);
      }
      if ((x += kOther) >= w.to) x = w.from;
    }
    hopper::wgmma_wait<0>();
    settle(acc_d);
    if (kKeys) settle(acc_e);
    if (kAhead && behind >= 0) arrive(empty + 8 * behind, alone);
    arrive(finished, false);
    const int64_t at = (int64_t(t.begin) + start) * mine_heads + head;
    bf16* out_d = static_cast<bf16*>(kKeys ? a.dk : a.dq);
    if (out_d) store(out_d + at * D, int64_t(mine_heads) * D, length - start, acc_d, a.s.scale);
    if constexpr (kKeys)
      if (bf16* out_e = static_cast<bf16*>(a.dv))
        store(out_e + at * E, int64_t(mine_heads) * E, length - start, acc_e, 1.f);
  }
}

// lse (in base 2) and delta = the sum of o * up over a head's channels, both as [heads, tokens]. 16 lanes a row.
template <int E>
__global__ void __launch_bounds__(256)
    statistics(const bf16* __restrict__ o, const bf16* __restrict__ up, const float* __restrict__ lse, int64_t tokens,
               int heads, float* lse_to, float* delta_to) {
  const int64_t row = (int64_t(blockIdx.x) * 256 + threadIdx.x) / 16;
  const int part = threadIdx.x & 15;
  float s = 0;
  if (row < tokens * heads)
#pragma unroll
    for (int i = 0; i < E / 64; ++i) {
      const int64_t at = row * E + i * 64 + part * 4;
      const uint2 x = *reinterpret_cast<const uint2*>(o + at), y = *reinterpret_cast<const uint2*>(up + at);
      const auto *p = reinterpret_cast<const __nv_bfloat162*>(&x), *q = reinterpret_cast<const __nv_bfloat162*>(&y);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float2 u = __bfloat1622float2(p[j]), w = __bfloat1622float2(q[j]);
        s += u.x * w.x + u.y * w.y;
      }
    }
  for (int i = 8; i; i /= 2) s += __shfl_xor_sync(~0u, s, i);
  if (row < tokens * heads && part == 0) {
    const int64_t to = row % heads * tokens + row / heads;
    lse_to[to] = lse[row] * kLog2E, delta_to[to] = s;
  }
}

template <int D, int E, bool kKeys>
void pass(const AttentionBackwardArgs& a, const AttentionMaps& m, const float* lse, const float* delta,
          cudaStream_t stream) {
  using L = Layout<D, E>;
  const AttentionTiles t = attention_tiles(a.workspace, a.cu, a.s.tokens, a.s.documents, a.s.causal,
                                           kKeys ? TileOrder::by_key : TileOrder::by_query, kMine, stream);
  const int64_t heads = kKeys ? a.s.groups : a.s.heads;
  const auto kernel = backward<D, E, kKeys, !kKeys>;
  allow_shared(kernel, L::kBytes, "attention_backward");
  kernel<<<blocks_of(t.most * heads), kThreads, L::kBytes, stream>>>(
      kKeys ? m.k : m.q, kKeys ? m.v : m.up, kKeys ? m.q : m.k, kKeys ? m.up : m.v, a, lse, delta, t);
  check_launch("attention_backward");
}

template <int D, int E>
void both(const AttentionBackwardArgs& a, const AttentionMaps& m, cudaStream_t stream) {
  float* lse = reinterpret_cast<float*>(static_cast<char*>(a.workspace) +
                                        rounded(attention_tiles_bytes(a.s.tokens, a.s.documents)));
  float* delta = lse + a.s.tokens * a.s.heads;
  const int64_t rows = a.s.tokens * a.s.heads;
  statistics<E><<<unsigned((rows + 15) / 16), 256, 0, stream>>>(
      static_cast<const bf16*>(a.o), static_cast<const bf16*>(a.up), a.lse, a.s.tokens, int(a.s.heads), lse, delta);
  check_launch("attention_backward statistics");
  if (a.dq) pass<D, E, false>(a, m, lse, delta, stream);
  if (a.dk || a.dv) pass<D, E, true>(a, m, lse, delta, stream);
}

}  // namespace

bool attention_wgmma_takes(int64_t key_width, int64_t value_width) {
  return (key_width == 192 && value_width == 128) || (key_width == 128 && value_width == 128) ||
         (key_width == 64 && value_width == 64);
}

size_t attention_backward_wgmma_bytes(const AttentionShape& s) {
  return rounded(attention_tiles_bytes(s.tokens, s.documents)) + 2 * size_t(s.tokens * s.heads) * sizeof(float);
}

void attention_backward_wgmma(const AttentionBackwardArgs& a, const AttentionMaps& maps, cudaStream_t stream) {
  if (a.s.tokens == 0 || (!a.dq && !a.dk && !a.dv)) return;
  if (a.s.key_width == 192)
    both<192, 128>(a, maps, stream);
  else if (a.s.key_width == 128)
    both<128, 128>(a, maps, stream);
  else
    both<64, 64>(a, maps, stream);
}

}  // namespace kb::cuda
