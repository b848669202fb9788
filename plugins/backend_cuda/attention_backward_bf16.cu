// attention_backward_bf16.cu: the gradients of attention with mma.sync, any widths up to 256, the same bits every run. Two
// passes make P and dS again from lse: one block owns 64 queries and walks over keys for dq, another owns 64 keys and walks
// over queries (of all heads that share them) for dk and dv. Both are one kernel: `mine` are the rows a block owns, `other`
// those it walks over. Eight warps: each makes 16 x 32 of the 64 x 64 of P and dS, which go through shared memory as
// bf16, and then 16 rows by half of the columns of the gradients.
#include "attention_device.cuh"
#include "attention_mma.cuh"

namespace kb::cuda {
namespace {

constexpr int kThreads = 256, kRows = kAttentionTile, kStride = padded(kRows);

template <int D, int E>
constexpr size_t shared_bytes() {
  return sizeof(bf16) * (size_t(3 * kRows) * (padded(D) + padded(E)) + size_t(2 * kRows) * kStride) +
         sizeof(float) * 4 * kRows;
}

template <int W>  // 16 rows of this warp, columns of its half; rows `row` apart
__device__ void store(bf16* to, int64_t row, int width, int rows, const float (&acc)[W / 16][4], float scale) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
  for (int n = 0; n < W / 16; ++n)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int at = (warp & 3) * 16 + lane / 4 + r * 8, x = (warp >> 2) * (W / 2) + n * 8 + (lane & 3) * 2;
      if (at >= rows) continue;
      const float low = acc[n][2 * r] * scale, high = acc[n][2 * r + 1] * scale;
      if (width % 2 == 0 && x < width) {
        *reinterpret_cast<uint32_t*>(to + at * row + x) = pack(low, high);
      } else {
        if (x < width) to[at * row + x] = __float2bfloat16(low);
        if (x + 1 < width) to[at * row + x + 1] = __float2bfloat16(high);
      }
    }
}

// acc [16 rows, W / 2 columns] += a [16 rows, 64] tile [64, W]
template <int W>
__device__ void gather(float (&acc)[W / 16][4], const bf16* a, const bf16* tile) {
  const int warp = threadIdx.x >> 5;
#pragma unroll
  for (int j = 0; j < kRows / 16; ++j) {
    uint32_t fa[4], fb[4];
    load_a(fa, a + (warp & 3) * 16 * kStride, kStride, j * 16);
#pragma unroll
    for (int n = 0; n < W / 32; ++n) {
      load_b_columns(fb, tile + j * 16 * padded(W), padded(W), (warp >> 2) * (W / 2) + n * 16);
      multiply_add(acc[2 * n], fa, fb[0], fb[1]);
      multiply_add(acc[2 * n + 1], fa, fb[2], fb[3]);
    }
  }
}

// c [16 rows of mine, 32 rows of other] = mine other^T over W columns
template <int W>
__device__ void products(float (&c)[4][4], const bf16* mine, const bf16* other) {
  const int warp = threadIdx.x >> 5;
#pragma unroll
  for (int n = 0; n < 4; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) c[n][i] = 0;
#pragma unroll
  for (int x = 0; x < W; x += 16) {
    uint32_t fa[4], fb[4];
    load_a(fa, mine + (warp & 3) * 16 * padded(W), padded(W), x);
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      load_b_rows(fb, other + ((warp >> 2) * 32 + n * 16) * padded(W), padded(W), x);
      multiply_add(c[2 * n], fa, fb[0], fb[1]);
      multiply_add(c[2 * n + 1], fa, fb[2], fb[3]);
    }
  }
}

template <int D, int E, bool kKeys>
__global__ void __launch_bounds__(kThreads, 1)
    backward(AttentionBackwardArgs a, const float* __restrict__ delta, const int32_t* __restrict__ count,
             const AttentionTile* __restrict__ tiles) {
  extern __shared__ __align__(16) char memory[];
  const int heads = int(a.s.heads), groups = int(a.s.groups), mine_heads = kKeys ? groups : heads,
            each = heads / groups;
  const int tile = int(blockIdx.x) / mine_heads, head = int(blockIdx.x) % mine_heads;
  if (tile >= *count) return;
  const AttentionTile t = tiles[tile];
  const int d = int(a.s.key_width), e = int(a.s.value_width), rows = min(kRows, t.end - t.row);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int64_t mine_at = int64_t(t.row) * mine_heads + head;  // the first of my rows, in heads
  bf16* out_d = static_cast<bf16*>(kKeys ? a.dk : a.dq);
  bf16* out_e = static_cast<bf16*>(kKeys ? a.dv : nullptr);
  if (t.kind) {
    for (int i = threadIdx.x; out_d && i < rows * d; i += kThreads)
      out_d[(mine_at + int64_t(i / d) * mine_heads) * d + i % d] = __float2bfloat16(0.f);
    for (int i = threadIdx.x; out_e && i < rows * e; i += kThreads)
      out_e[(mine_at + int64_t(i / e) * mine_heads) * e + i % e] = __float2bfloat16(0.f);
    return;
  }
  bf16* mine_d = reinterpret_cast<bf16*>(memory);                 // [kRows, D]
  bf16* mine_e = mine_d + kRows * padded(D);                      // [kRows, E]
  bf16* other_d = mine_e + kRows * padded(E);                     // [2, kRows, D]
  bf16* other_e = other_d + 2 * kRows * padded(D);                // [2, kRows, E]
  bf16* ds = other_e + 2 * kRows * padded(E);                     // [kRows, kRows]
  bf16* p = ds + kRows * kStride;                                 // [kRows, kRows]
  float* lse_of = reinterpret_cast<float*>(p + kRows * kStride);  // [2, kRows] of the other's rows
  float* delta_of = lse_of + 2 * kRows;                           // [2, kRows]

  const bf16 *q = static_cast<const bf16*>(a.q), *k = static_cast<const bf16*>(a.k), *v = static_cast<const bf16*>(a.v);
  const bf16* up = static_cast<const bf16*>(a.up);
  load_tile<kRows, D, kThreads>(mine_d, (kKeys ? k : q) + mine_at * d, int64_t(mine_heads) * d, d, rows);
  load_tile<kRows, E, kThreads>(mine_e, (kKeys ? v : up) + mine_at * e, int64_t(mine_heads) * e, e, rows);

  // Tiles of the other's rows, in the document; for keys once for each query head that shares them.
  const int length = t.end - t.begin, index = t.row - t.begin;
  const int from = kKeys && a.s.causal ? index : 0, to = !kKeys && a.s.causal ? min(index + kRows, length) : length;
  const int walk = (to - from + kRows - 1) / kRows, steps = kKeys ? walk * each : walk;
  const auto fetch = [&](int step, int stage) {
    const int x = from + step % walk * kRows;  // in the document
    const int other_heads = kKeys ? heads : groups, h = kKeys ? head * each + step / walk : head / each;
    const int64_t at = int64_t(t.begin + x) * other_heads + h;
    load_tile<kRows, D, kThreads>(other_d + stage * kRows * padded(D), (kKeys ? q : k) + at * d,
                                  int64_t(other_heads) * d, d, length - x);
    load_tile<kRows, E, kThreads>(other_e + stage * kRows * padded(E), (kKeys ? up : v) + at * e,
                                  int64_t(other_heads) * e, e, length - x);
    copies_commit();
    if (kKeys && threadIdx.x < kRows) {
      const bool in = x + int(threadIdx.x) < length;
      lse_of[stage * kRows + threadIdx.x] = in ? a.lse[at + int64_t(threadIdx.x) * heads] * kLog2E : 0.f;
      delta_of[stage * kRows + threadIdx.x] = in ? delta[at + int64_t(threadIdx.x) * heads] : 0.f;
    }
  };
  fetch(0, 0);
  const int my_row = (warp & 3) * 16 + lane / 4;  // and my_row + 8
  float my_lse[2] = {0, 0}, my_delta[2] = {0, 0};
  if (!kKeys)
    for (int r = 0; r < 2; ++r)
      if (my_row + r * 8 < rows) {
        my_lse[r] = a.lse[mine_at + int64_t(my_row + r * 8) * heads] * kLog2E;
        my_delta[r] = delta[mine_at + int64_t(my_row + r * 8) * heads];
      }

  float acc_d[D / 16][4], acc_e[E / 16][4];
#pragma unroll
  for (int n = 0; n < D / 16; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) acc_d[n][i] = 0;
#pragma unroll
  for (int n = 0; n < E / 16; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) acc_e[n][i] = 0;
  const float scale = a.s.scale * kLog2E;
  for (int step = 0, stage = 0; step < steps; ++step, stage ^= 1) {
    if (step + 1 < steps) {
      fetch(step + 1, stage ^ 1);
      copies_wait<1>();
    } else {
      copies_wait<0>();
    }
    __syncthreads();
    const bf16 *tile_d = other_d + stage * kRows * padded(D), *tile_e = other_e + stage * kRows * padded(E);
    float s[4][4], dp[4][4];
    products<D>(s, mine_d, tile_d);
    products<E>(dp, mine_e, tile_e);
    const int x = from + step % walk * kRows;
    const bool mask = x + kRows > length || index + kRows > length || (a.s.causal && x == index);
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int column = (warp >> 2) * 32 + n * 8 + (lane & 3) * 2;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = i / 2, other = column + (i & 1);
        const float lse = kKeys ? lse_of[stage * kRows + other] : my_lse[r];
        const float del = kKeys ? delta_of[stage * kRows + other] : my_delta[r];
        s[n][i] = exp2f(s[n][i] * scale - lse);
        dp[n][i] = s[n][i] * (dp[n][i] - del);
        const int m = index + my_row + r * 8, j = x + other;  // in the document
        if (mask && (m >= length || j >= length || (a.s.causal && (kKeys ? j < m : j > m)))) s[n][i] = dp[n][i] = 0;
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int at = (my_row + r * 8) * kStride + column;
        *reinterpret_cast<uint32_t*>(ds + at) = pack(dp[n][2 * r], dp[n][2 * r + 1]);
        if (kKeys) *reinterpret_cast<uint32_t*>(p + at) = pack(s[n][2 * r], s[n][2 * r + 1]);
      }
    }
    __syncthreads();
    if (!kKeys || out_d) gather<D>(acc_d, ds, tile_d);
    if (kKeys && out_e) gather<E>(acc_e, p, tile_e);
    __syncthreads();
  }
  if (out_d) store<D>(out_d + mine_at * d, int64_t(mine_heads) * d, d, rows, acc_d, a.s.scale);
  if (kKeys && out_e) store<E>(out_e + mine_at * e, int64_t(mine_heads) * e, e, rows, acc_e, 1.f);
}

template <int D, int E, bool kKeys>
void run(const AttentionBackwardArgs& a, const float* delta, const AttentionTiles& t, cudaStream_t stream) {
  allow_shared(backward<D, E, kKeys>, shared_bytes<D, E>(), "attention_backward");
  const int64_t heads = kKeys ? a.s.groups : a.s.heads;
  backward<D, E, kKeys>
      <<<unsigned(t.most * heads), kThreads, shared_bytes<D, E>(), stream>>>(a, delta, t.count, t.tile);
  check_launch("attention_backward");
}

template <bool kKeys>
void any(const AttentionBackwardArgs& a, const float* delta, const AttentionTiles& t, cudaStream_t stream) {
  const int64_t d = a.s.key_width, e = a.s.value_width;
  if (d <= 64 && e <= 64)
    run<64, 64, kKeys>(a, delta, t, stream);
  else if (d <= 128 && e <= 128)
    run<128, 128, kKeys>(a, delta, t, stream);
  else if (d <= 192 && e <= 128)
    run<192, 128, kKeys>(a, delta, t, stream);
  else
    run<256, 256, kKeys>(a, delta, t, stream);
}

}  // namespace

void attention_backward_bf16(const AttentionBackwardArgs& a, cudaStream_t stream) {
  if (!a.dq && !a.dk && !a.dv) return;
  float* delta = attention_delta(a);
  attention_delta_bf16(a.o, a.up, a.s.tokens * a.s.heads, a.s.value_width, delta, stream);
  const auto tiles = [&](TileOrder order) {
    return attention_tiles(a.workspace, a.cu, a.s.tokens, a.s.documents, a.s.causal, order, kRows, stream);
  };
  if (a.dq) any<false>(a, delta, tiles(TileOrder::by_query), stream);
  if (a.dk || a.dv) any<true>(a, delta, tiles(TileOrder::by_key), stream);
}

}  // namespace kb::cuda
