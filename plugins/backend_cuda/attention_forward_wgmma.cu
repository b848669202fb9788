// attention_forward_wgmma.cu: attention for sm_90a, bf16. A block takes tiles of 128 queries of a head until none is left, two
// warpgroups of 64 rows each, and walks over tiles of 128 keys from the last that is seen to the first, so that only the
// first step masks. One warp feeds the copy engine, also with the next tile while results are written. Within a warpgroup the
// logits of a tile are under way while the values of the tile before are added; between the two, one takes exponentials while
// the other multiplies.
#include "attention_device.cuh"
#include "attention_mma.cuh"
#include "attention_wgmma.cuh"
#include "attention_wgmma.h"

namespace kb::cuda {
namespace {

constexpr int kThreads = 384, kRows = 128, kKeys = 128;  // threads: 128 for the copy engine, two warpgroups

template <int D, int E>
struct Layout {  // of shared memory, in bytes from a multiple of 1024; boxes of 64 columns hold two boxes of 64 rows
  static constexpr int kStages = 2;
  static constexpr int kQueryAt = 0;                                     // [2 warpgroups][D / 64] boxes
  static constexpr int kKeyAt = kQueryAt + 2 * D / 64 * kBox;            // [kStages][D / 64][2]
  static constexpr int kValueAt = kKeyAt + kStages * D / 64 * 2 * kBox;  // [kStages][E / 64][2]
  static constexpr int kBarrierAt = kValueAt + kStages * E / 64 * 2 * kBox;
  static constexpr int kBytes = kBarrierAt + (4 * kStages + 3) * 8 + 16 + 1024;
};

struct Row {  // running softmax of one row: largest logit (before the scale), sum
  float top, sum;
};

// s -> exp2((s - top) * scale); what older sums must be multiplied by goes to shrink.
__device__ void soften(float (&s)[64], Row (&row)[2], float (&shrink)[2], float scale) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float top = row[r].top;
#pragma unroll
    for (int n = 0; n < 16; ++n) top = fmaxf(top, fmaxf(s[4 * n + 2 * r], s[4 * n + 2 * r + 1]));
    top = quad_max(top);
    const float minus = top == -INFINITY ? 0.f : top * scale;
    shrink[r] = exp2f(row[r].top * scale - minus);
    float sum = 0;
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; ++i) s[4 * n + i] = exp2f(s[4 * n + i] * scale - minus), sum += s[4 * n + i];
    row[r].sum = row[r].sum * shrink[r] + sum, row[r].top = top;
  }
}

// Tiles of keys that the rows of a tile see.
__device__ int steps_of(const AttentionForwardArgs& a, const AttentionTile& t) {
  const int length = t.end - t.begin, seen = a.s.causal ? min(t.row - t.begin + kRows, length) : length;
  return (seen + kKeys - 1) / kKeys;
}

__device__ void zero_rows(const AttentionForwardArgs& a, const AttentionTile& t, int head, int thread, int width) {
  const int rows = min(kRows, t.end - t.row), heads = int(a.s.heads);
  const int64_t at = int64_t(t.row) * heads + head;
  bf16* o = static_cast<bf16*>(a.o);
  for (int i = thread; o && i < rows * width; i += 256)
    o[(at + int64_t(i / width) * heads) * width + i % width] = __float2bfloat16(0.f);
  for (int i = thread; a.lse && i < rows; i += 256) a.lse[at + int64_t(i) * heads] = 0;
}

template <int D, int E>
__global__ void __launch_bounds__(kThreads, 1)
    forward(const __grid_constant__ CUtensorMap q_map, const __grid_constant__ CUtensorMap k_map,
            const __grid_constant__ CUtensorMap v_map, const AttentionForwardArgs a, const AttentionTiles tiles,
            float* found) {
  using L = Layout<D, E>;
  extern __shared__ char memory[];
  const int heads = int(a.s.heads), total = *tiles.count * heads;
  const uint32_t base = (hopper::shared_address(memory) + 1023) & ~1023u, barriers = base + L::kBarrierAt;
  const auto full_k = [&](int i) { return barriers + 8 * i; };
  const auto full_v = [&](int i) { return barriers + 8 * (L::kStages + i); };
  const auto empty_k = [&](int i) { return barriers + 8 * (2 * L::kStages + i); };
  const auto empty_v = [&](int i) { return barriers + 8 * (3 * L::kStages + i); };
  const uint32_t ready = barriers + 8 * 4 * L::kStages, finished = ready + 8, tail_in = finished + 8;
  volatile int* work_of = reinterpret_cast<volatile int*>(memory + (tail_in + 8 - hopper::shared_address(memory)));
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2 * L::kStages; ++i) hopper::barrier_init(full_k(i), 1), hopper::barrier_init(empty_k(i), 2);
    hopper::barrier_init(ready, 1);
    hopper::barrier_init(finished, 2);
    hopper::barrier_init(tail_in, 1);
    hopper::barrier_init_done();
  }
  __syncthreads();

  if (threadIdx.x < 128) {  // ---- the copy engine's feeder
    hopper::fewer_registers<40>();
    if (threadIdx.x >= 32) return;
    const int lane = threadIdx.x;
    int work = lane == 0 ? atomicAdd(tiles.next, 1) : 0;
    for (int turn = 0, it = 0, tails = 0;; ++turn) {
      work = __shfl_sync(~0u, work, 0);
      if (turn) hopper::barrier_wait(finished, (turn - 1) & 1);
      if (lane == 0) *work_of = work < total ? work : -1;
      if (work >= total) {
        if (lane == 0) hopper::barrier_arrive_at(ready, 0);
        return;
      }
      const AttentionTile t = tiles.tile[work / heads];
      const int head = work % heads, group = head / (heads / int(a.s.groups)), steps = t.kind ? 0 : steps_of(a, t);
      if (lane == 0) work = atomicAdd(tiles.next, 1);
      if (t.kind) {
        if (lane == 0) hopper::barrier_arrive_at(ready, 0);
        continue;
      }
      if (lane == 0) {
        hopper::barrier_expect(ready, 2 * D / 64 * kBox);
        for (int w = 0; w < 2; ++w)
#pragma unroll 1
          for (int b = 0; b < D / 64; ++b)
            hopper::load(base + L::kQueryAt + (w * (D / 64) + b) * kBox, &q_map, head * D + b * 64, t.row + w * 64, 0,
                         ready);
      }
      for (int step = 0; step < steps; ++step, ++it) {
        const int stage = it % L::kStages, before = (it / L::kStages - 1) & 1,
                  row = t.begin + (steps - 1 - step) * kKeys;
        if (it >= L::kStages) hopper::barrier_wait(empty_k(stage), before);
        if (lane == 0) {
          hopper::barrier_expect(full_k(stage), D / 64 * 2 * kBox);
#pragma unroll
          for (int b = 0; b < D / 64; ++b)
            hopper::load(base + L::kKeyAt + (stage * (D / 64) + b) * 2 * kBox, &k_map, group * D + b * 64, row, 0,
                         full_k(stage));
        }
        if (it >= L::kStages) hopper::barrier_wait(empty_v(stage), before);
        const bool tail = row + kKeys > t.end;
        const uint32_t to = base + L::kValueAt + stage * (E / 64) * 2 * kBox, arrived = tail ? tail_in : full_v(stage);
        if (lane == 0) {
          hopper::barrier_expect(arrived, E / 64 * 2 * kBox);
#pragma unroll
          for (int b = 0; b < E / 64; ++b) hopper::load(to + b * 2 * kBox, &v_map, group * E + b * 64, row, 0, arrived);
        }
        if (tail) {
          hopper::barrier_wait(tail_in, tails++ & 1);
          clear_rows(memory + (to - hopper::shared_address(memory)), E / 64, kKeys, t.end - row);
          if (lane == 0) hopper::barrier_arrive_at(full_v(stage), 0);
        }
      }
    }
  }

  // ---- a warpgroup: 64 rows of each tile
  hopper::more_registers<232>();
  const int group = int(threadIdx.x >> 7) - 1, lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
  const uint32_t my_q = base + L::kQueryAt + group * (D / 64) * kBox;
  const float scale = a.s.scale * kLog2E;
  const bool speaker = (threadIdx.x & 127) == 0;
  bf16* const o = static_cast<bf16*>(a.o);
  float acc[E / 2], s[64];
  uint32_t p[8][4];
  const auto logits = [&](int stage) {  // s = q k^T, under way
    const uint32_t keys = base + L::kKeyAt + stage * (D / 64) * 2 * kBox;
#pragma unroll
    for (int i = 0; i < D / 16; ++i)
      multiply_rows(s, rows_operand(my_q + i / 4 * kBox, i & 3), rows_operand(keys + i / 4 * 2 * kBox, i & 3), i > 0);
    hopper::wgmma_commit();
  };
  const auto half_logits = [&](int stage) {  // the same for the first 64 keys
    const uint32_t keys = base + L::kKeyAt + stage * (D / 64) * 2 * kBox;
#pragma unroll
    for (int i = 0; i < D / 16; ++i)
      multiply_rows_64(s, rows_operand(my_q + i / 4 * kBox, i & 3), rows_operand(keys + i / 4 * 2 * kBox, i & 3),
                       i > 0);
    hopper::wgmma_commit();
  };
  const auto add_values = [&](int stage) {  // acc += p v, under way
    const uint32_t values = base + L::kValueAt + stage * (E / 64) * 2 * kBox;
#pragma unroll
    for (int i = 0; i < 8; ++i) multiply_columns(acc, p[i], columns_operand(values, i, 2 * kBox));
    hopper::wgmma_commit();
  };
  const auto pack_p = [&] {
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) p[j][i] = pack(s[8 * j + 2 * i], s[8 * j + 2 * i + 1]);
  };
  const auto arrive = [&](uint32_t barrier) {
    if (speaker) hopper::barrier_arrive_at(barrier, 0);
  };
  // The warpgroups issue their products in turns.
  const auto wait_turn = [&](bool both) {
    if (both) hopper::named_sync(2 + group, 256);
  };
  const auto give_turn = [&](bool both) {
    if (both) asm volatile("bar.arrive %0, %1;" ::"r"(3 - group), "r"(256) : "memory");
  };
  if (group == 1) give_turn(true);
  for (int turn = 0, it = 0;; ++turn) {
    hopper::barrier_wait(ready, turn & 1);
    const int work = *work_of;
    if (work < 0) return;
    const int tile = work / heads, head = work % heads;
    const AttentionTile t = tiles.tile[tile];
    float* const my_found = found ? found + (int64_t(tile) * kFoundOfTile + group * 4 + warp) * heads + head : nullptr;
    const int start = t.row - t.begin + group * 64, length = t.end - t.begin;  // my rows are [start, start + 64)
    if (t.kind) {
      warpgroup_sync(group);
      arrive(finished);
      zero_rows(a, t, head, int(threadIdx.x) - 128, E);
      if (my_found && lane == 0) *my_found = -INFINITY;
      continue;
    }
    const int steps = steps_of(a, t);
    const bool both = t.row - t.begin + 64 < length;  // have rows
    if (start >= length) {                            // no rows: only lets go of what comes
      warpgroup_sync(group);
      arrive(finished);
      if (my_found && lane == 0) *my_found = -INFINITY;
      if (warp == 0)
        for (int i = it; i < it + steps; ++i) {
          hopper::barrier_wait(full_k(i % L::kStages), i / L::kStages & 1);
          arrive(empty_k(i % L::kStages));
          hopper::barrier_wait(full_v(i % L::kStages), i / L::kStages & 1);
          arrive(empty_v(i % L::kStages));
        }
      it += steps;
      continue;
    }
    const int my_row = start + warp * 16 + lane / 4;  // and my_row + 8
    Row row[2] = {{-INFINITY, 0}, {-INFINITY, 0}};
#pragma unroll
    for (int i = 0; i < E / 2; ++i) acc[i] = 0;
    float shrink[2];
    // The last tile of keys, alone with masks; often its second half is behind all that these rows see.
    const int x = (steps - 1) * kKeys;
    const bool half = D > 64 && min(length, a.s.causal ? start + 64 : length) - x <= 64;  // D = 64: nothing to win
    hopper::barrier_wait(full_k(it % L::kStages), it / L::kStages & 1);
    settle(s);
    if (half) {
      hopper::wgmma_fence();
      half_logits(it % L::kStages);
      hopper::wgmma_wait<0>();
    } else {
      hopper::wgmma_fence();
      logits(it % L::kStages);
      hopper::wgmma_wait<0>();
    }
    settle(s);
    arrive(empty_k(it % L::kStages));
#pragma unroll
    for (int r = 0; r < 2; ++r) {  // keys that a row sees of this tile, from this lane's first column on
      const int sees = min(length, a.s.causal ? my_row + r * 8 + 1 : length) - x - (lane & 3) * 2;
#pragma unroll
      for (int n = 0; n < 16; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (n * 8 + i >= sees) s[4 * n + 2 * r + i] = -INFINITY;
    }
    soften(s, row, shrink, scale);
    pack_p();
    ++it;
#pragma unroll 1
    for (int step = 1; step < steps; ++step, ++it) {
      const int stage = it % L::kStages, before = (it - 1) % L::kStages;
      hopper::barrier_wait(full_k(stage), it / L::kStages & 1);
      wait_turn(both);
      settle(s);
      hopper::wgmma_fence();
      logits(stage);
      hopper::barrier_wait(full_v(before), (it - 1) / L::kStages & 1);
      settle(acc);
      hopper::wgmma_fence();
      add_values(before);
      give_turn(both);
      hopper::wgmma_wait<1>();
      settle(s);
      arrive(empty_k(stage));
      soften(s, row, shrink, scale);
      hopper::wgmma_wait<0>();
      settle(acc);
      arrive(empty_v(before));
#pragma unroll
      for (int n = 0; n < E / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[4 * n + i] *= shrink[i / 2];
      pack_p();
    }
    const int last = (it - 1) % L::kStages;
    hopper::barrier_wait(full_v(last), (it - 1) / L::kStages & 1);
    settle(acc);
    hopper::wgmma_fence();
    add_values(last);
    hopper::wgmma_wait<0>();
    settle(acc);
    arrive(empty_v(last));
    arrive(finished);

    float most = -INFINITY;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = quad_sum(row[r].sum);
      const int at = my_row + r * 8;  // in the document
      if (at >= length) continue;
      most = fmaxf(most, row[r].top);
      const int64_t to = int64_t(t.begin + at) * heads + head;
      if (a.lse && (lane & 3) == 0) a.lse[to] = row[r].top * a.s.scale + logf(sum);
      if (!o) continue;
      const float by = 1 / sum;
#pragma unroll
      for (int n = 0; n < E / 8; ++n)
        *reinterpret_cast<uint32_t*>(o + to * E + n * 8 + (lane & 3) * 2) =
            pack(acc[4 * n + 2 * r] * by, acc[4 * n + 2 * r + 1] * by);
    }
    if (my_found) {
      for (int i = 16; i; i /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, i));
      if (lane == 0) *my_found = most * a.s.scale;
    }
  }
}

template <int D, int E>
void run(const AttentionForwardArgs& a, const AttentionMaps& m, const AttentionTiles& t, float* found,
         cudaStream_t stream) {
  using L = Layout<D, E>;
  const auto kernel = forward<D, E>;
  allow_shared(kernel, L::kBytes, "attention");
  kernel<<<blocks_of(t.most * a.s.heads), kThreads, L::kBytes, stream>>>(m.q, m.k, m.v, a, t, found);
  check_launch("attention");
}

}  // namespace

void attention_forward_wgmma(const AttentionForwardArgs& a, const AttentionMaps& maps, cudaStream_t stream) {
  const AttentionTiles t =
      attention_tiles(a.workspace, a.cu, a.s.tokens, a.s.documents, a.s.causal, TileOrder::by_query, kRows, stream);
  float* found = a.peak ? attention_found(a) : nullptr;
  if (a.s.tokens > 0) {
    if (a.s.key_width == 192)
      run<192, 128>(a, maps, t, found, stream);
    else if (a.s.key_width == 128)
      run<128, 128>(a, maps, t, found, stream);
    else
      run<64, 64>(a, maps, t, found, stream);
  }
  if (a.peak) attention_peak(found, t.count, kFoundOfTile, a.s.heads, a.peak, stream);
}

}  // namespace kb::cuda
