// attention_forward_bf16.cu: attention of packed documents with mma.sync, any widths up to 256. A block of four warps holds
// 64 queries of one head, 16 a warp, and walks over tiles of 64 keys with a running softmax; logits and probabilities stay
// in registers, and keys and values of the next tile are on their way while this one is worked on.
#include "attention_device.cuh"
#include "attention_mma.cuh"

namespace kb::cuda {
namespace {

constexpr int kThreads = 128, kRows = kAttentionTile, kKeys = 64;

template <int D, int E>
constexpr size_t shared_bytes() {
  return sizeof(bf16) * (size_t(kRows + 2 * kKeys) * padded(D) + size_t(2 * kKeys) * padded(E));
}

template <int D, int E>
__global__ void __launch_bounds__(kThreads) forward(AttentionForwardArgs a, const int32_t* __restrict__ count,
                                                    const AttentionTile* __restrict__ tiles, float* found) {
  extern __shared__ __align__(16) char memory[];
  const int heads = int(a.s.heads), tile = int(blockIdx.x) / heads, head = int(blockIdx.x) % heads;
  if (tile >= *count) return;
  const AttentionTile t = tiles[tile];
  const int d = int(a.s.key_width), e = int(a.s.value_width), rows = min(kRows, t.end - t.row);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  bf16* o = static_cast<bf16*>(a.o);
  const int64_t o_at = (int64_t(t.row) * heads + head) * e, o_row = int64_t(heads) * e;
  if (t.kind) {
    for (int i = threadIdx.x; o && i < rows * e; i += kThreads) o[o_at + i / e * o_row + i % e] = __float2bfloat16(0.f);
    for (int i = threadIdx.x; a.lse && i < rows; i += kThreads) a.lse[int64_t(t.row + i) * heads + head] = 0;
    if (found && threadIdx.x == 0) found[int64_t(tile) * heads + head] = -INFINITY;
    return;
  }
  bf16* q_tile = reinterpret_cast<bf16*>(memory);  // [kRows, D]
  bf16* k_tile = q_tile + kRows * padded(D);       // [2, kKeys, D]
  bf16* v_tile = k_tile + 2 * kKeys * padded(D);   // [2, kKeys, E]
  const int groups = int(a.s.groups), group = head / (heads / groups);
  const int64_t k_row = int64_t(groups) * d, v_row = int64_t(groups) * e;
  const bf16* k = static_cast<const bf16*>(a.k) + (int64_t(t.begin) * groups + group) * d;
  const bf16* v = static_cast<const bf16*>(a.v) + (int64_t(t.begin) * groups + group) * e;
  load_tile<kRows, D, kThreads>(q_tile, static_cast<const bf16*>(a.q) + (int64_t(t.row) * heads + head) * d,
                                int64_t(heads) * d, d, rows);
  const int length = t.end - t.begin, index = t.row - t.begin;  // of the document; of the first query in it
  const int seen = a.s.causal ? min(index + kRows, length) : length;
  const auto fetch = [&](int key, int stage) {
    load_tile<kKeys, D, kThreads>(k_tile + stage * kKeys * padded(D), k + key * k_row, k_row, d, length - key);
    if (o) load_tile<kKeys, E, kThreads>(v_tile + stage * kKeys * padded(E), v + key * v_row, v_row, e, length - key);
    copies_commit();
  };
  fetch(0, 0);

  float acc[E / 8][4];
#pragma unroll
  for (int n = 0; n < E / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[n][i] = 0;
  float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};  // of rows lane / 4 and lane / 4 + 8; logits in base 2
  const float scale = a.s.scale * kLog2E;
  const int row = index + warp * 16 + lane / 4;  // in the document
  for (int key = 0, stage = 0; key < seen; key += kKeys, stage ^= 1) {
    if (key + kKeys < seen) {
      fetch(key + kKeys, stage ^ 1);
      copies_wait<1>();
    } else {
      copies_wait<0>();
    }
    __syncthreads();
    float s[kKeys / 8][4];
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[n][i] = 0;
    const bf16* keys = k_tile + stage * kKeys * padded(D);
#pragma unroll
    for (int x = 0; x < D; x += 16) {
      uint32_t fa[4], fb[4];
      load_a(fa, q_tile + warp * 16 * padded(D), padded(D), x);
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        load_b_rows(fb, keys + n * 16 * padded(D), padded(D), x);
        multiply_add(s[2 * n], fa, fb[0], fb[1]);
        multiply_add(s[2 * n + 1], fa, fb[2], fb[3]);
      }
    }
    const bool mask = key + kKeys > length || (a.s.causal && key + kKeys > index);
    float now[2] = {top[0], top[1]};
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[n][i] *= scale;
        const int j = key + n * 8 + (lane & 3) * 2 + (i & 1);
        if (mask && (j >= length || (a.s.causal && j > row + i / 2 * 8))) s[n][i] = -INFINITY;
        now[i / 2] = fmaxf(now[i / 2], s[n][i]);
      }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      now[r] = quad_max(now[r]);
      const float safe = now[r] == -INFINITY ? 0.f : now[r], shrink = exp2f(top[r] - safe);
      float part = 0;
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 2 * r; i < 2 * r + 2; ++i) s[n][i] = exp2f(s[n][i] - safe), part += s[n][i];
      sum[r] = sum[r] * shrink + part;
      top[r] = now[r];
#pragma unroll
      for (int n = 0; n < E / 8; ++n) acc[n][2 * r] *= shrink, acc[n][2 * r + 1] *= shrink;
    }
    if (o) {
      const bf16* values = v_tile + stage * kKeys * padded(E);
#pragma unroll
      for (int j = 0; j < kKeys / 16; ++j) {
        const uint32_t fa[4] = {pack(s[2 * j][0], s[2 * j][1]), pack(s[2 * j][2], s[2 * j][3]),
                                pack(s[2 * j + 1][0], s[2 * j + 1][1]), pack(s[2 * j + 1][2], s[2 * j + 1][3])};
#pragma unroll
        for (int n = 0; n < E / 16; ++n) {
          uint32_t fb[4];
          load_b_columns(fb, values + j * 16 * padded(E), padded(E), n * 16);
          multiply_add(acc[2 * n], fa, fb[0], fb[1]);
          multiply_add(acc[2 * n + 1], fa, fb[2], fb[3]);
        }
      }
    }
    __syncthreads();  // before the next fetch overwrites this stage
  }

  float most = -INFINITY;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] = quad_sum(sum[r]);
    const int at = warp * 16 + lane / 4 + r * 8;  // in the tile
    if (at >= rows) continue;
    most = fmaxf(most, top[r]);
    if (a.lse && (lane & 3) == 0) a.lse[int64_t(t.row + at) * heads + head] = top[r] * kLn2 + logf(sum[r]);
    if (!o) continue;
    const float by = 1 / sum[r];
    bf16* to = o + o_at + at * o_row;
#pragma unroll
    for (int n = 0; n < E / 8; ++n) {
      const int x = n * 8 + (lane & 3) * 2;
      const float low = acc[n][2 * r] * by, high = acc[n][2 * r + 1] * by;
      if (e % 2 == 0 && x < e) {
        *reinterpret_cast<uint32_t*>(to + x) = pack(low, high);
      } else {
        if (x < e) to[x] = __float2bfloat16(low);
        if (x + 1 < e) to[x + 1] = __float2bfloat16(high);
      }
    }
  }
  if (found) {
    for (int i = 16; i; i /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, i));
    float* each = reinterpret_cast<float*>(memory);
    if (lane == 0) each[warp] = most;
    __syncthreads();
    if (threadIdx.x == 0)
      found[int64_t(tile) * heads + head] = fmaxf(fmaxf(each[0], each[1]), fmaxf(each[2], each[3])) * kLn2;
  }
}

template <int D, int E>
void run(const AttentionForwardArgs& a, const AttentionTiles& t, float* found, cudaStream_t stream) {
  allow_shared(forward<D, E>, shared_bytes<D, E>(), "attention");
  forward<D, E><<<unsigned(t.most * a.s.heads), kThreads, shared_bytes<D, E>(), stream>>>(a, t.count, t.tile, found);
  check_launch("attention");
}

}  // namespace

void attention_forward_bf16(const AttentionForwardArgs& a, cudaStream_t stream) {
  const AttentionTiles t =
      attention_tiles(a.workspace, a.cu, a.s.tokens, a.s.documents, a.s.causal, TileOrder::by_query, kRows, stream);
  float* found = a.peak ? attention_found(a) : nullptr;
  const int64_t d = a.s.key_width, e = a.s.value_width;
  if (d <= 64 && e <= 64)
    run<64, 64>(a, t, found, stream);
  else if (d <= 128 && e <= 128)
    run<128, 128>(a, t, found, stream);
  else if (d <= 192 && e <= 128)
    run<192, 128>(a, t, found, stream);
  else
    run<256, 256>(a, t, found, stream);
  if (a.peak) attention_peak(found, t.count, 1, a.s.heads, a.peak, stream);
}

}  // namespace kb::cuda
