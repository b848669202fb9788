// cached_attention_bf16.cu: queries look back over a cache, bf16 with mma.sync, for prompts and for single tokens. The rows of
// a tile are pairs of a new token and a head, of one document and one key head, so that heads that share keys (all of latent
// attention) read them once. Eight warps: 16 rows by 16 of 32 keys each for the logits, which meet in shared memory, then 16
// rows by half of the channels. Where tiles are few the keys are cut into pieces, which meet in a second kernel.
#include "attention_device.cuh"
#include "attention_mma.cuh"
#include "cached_attention.cuh"

namespace kb::cuda {
namespace {

constexpr int kThreads = 256, kRows = kAttentionTile, kKeys = 32, kLogits = kKeys + 1;

// W: room for the channels of keys and of values. kSame: values are the keys.
template <int W, bool kSame>
struct Layout {
  static constexpr int kStages = kSame || W <= 320 ? 2 : 1;
  static constexpr int kStage = kKeys * padded(W) * (kSame ? 1 : 2);  // elements
  static constexpr size_t kBytes =
      sizeof(bf16) * (size_t(kRows) * padded(W) + size_t(kStages) * kStage + kRows * padded(kKeys)) +
      sizeof(float) * (size_t(kRows) * kLogits + 3 * kRows) + sizeof(int) * kRows;
};

template <int W, bool kSame>
__global__ void __launch_bounds__(kThreads, 1)
    look_back(CachedAttentionArgs a, AttentionTiles tiles, CachePieces pieces, float2* part_of, float* part) {
  using L = Layout<W, kSame>;
  extern __shared__ __align__(16) char memory[];
  const int d = int(a.key_width), e = int(a.value_width), groups = int(a.groups), each = int(a.heads / a.groups);
  const int tile = int(blockIdx.x) / groups, group = int(blockIdx.x) % groups, piece = blockIdx.y;
  if (tile >= *tiles.count) return;
  const AttentionTile t = tiles.tile[tile];  // in (token, head) pairs
  const int rows = min(kRows, t.end - t.row), lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const auto pair_of = [&](int row) {  // the place of a row of the tile among [tokens, heads]
    const int at = t.row + row;
    return int64_t(at / each) * a.heads + group * each + at % each;
  };
  bf16* const o = static_cast<bf16*>(a.o);
  const int document = t.kind ? -1 : document_of(a.cu, int(a.documents), t.row / each);
  const int64_t slot = document < 0 ? -1 : a.slot ? a.slot[document] : document;
  if (slot < 0 || slot >= a.slots) {
    for (int i = threadIdx.x; piece == 0 && i < rows * e; i += kThreads)
      o[pair_of(i / e) * e + i % e] = __float2bfloat16(0.f);
    return;
  }
  bf16* const q = reinterpret_cast<bf16*>(memory);                       // [kRows, W]
  bf16* const stages = q + kRows * padded(W);                            // [kStages][keys, then values: kKeys, W]
  bf16* const p = stages + L::kStages * L::kStage;                       // [kRows, kKeys]
  float* const s = reinterpret_cast<float*>(p + kRows * padded(kKeys));  // [kRows, kKeys]
  float *const top = s + kRows * kLogits, *const sum = top + kRows, *const shrink = sum + kRows;
  int* const seen = reinterpret_cast<int*>(shrink + kRows);
  const int before = a.past[document], first_token = t.begin / each;
  for (int i = threadIdx.x; i < kRows; i += kThreads) {
    top[i] = -INFINITY, sum[i] = 0;
    seen[i] = i < rows ? min(before + (t.row + i) / each - first_token + 1, int(a.capacity)) : 0;
  }
  const int most = min(before + (t.row + rows - 1) / each - first_token + 1, int(a.capacity));
  const int from = piece * int(pieces.keys), to = min(most, from + int(pieces.keys));
  for (int i = threadIdx.x; i < kRows * W / 8; i += kThreads) {
    const int r = i / (W / 8), c = i % (W / 8) * 8;
    bf16* at = q + r * padded(W) + c;
    const bf16* source = static_cast<const bf16*>(a.q) + (r < rows ? pair_of(r) * d + c : 0);
    if (d % 8 == 0) {
      const bool in = r < rows && c < d;
      copy_async(at, in ? source : static_cast<const bf16*>(a.q), in);
    } else {
      for (int j = 0; j < 8; ++j) at[j] = r < rows && c + j < d ? source[j] : __float2bfloat16(0.f);
    }
  }
  const bf16* const k = static_cast<const bf16*>(a.k) + (slot * a.capacity * groups + group) * d;
  const bf16* const v = static_cast<const bf16*>(a.v) + (slot * a.capacity * groups + group) * e;
  const auto fetch = [&](int key, int stage) {
    bf16* at = stages + stage * L::kStage;
    load_tile<kKeys, W, kThreads>(at, k + int64_t(key) * groups * d, int64_t(groups) * d, d, to - key);
    if (!kSame)
      load_tile<kKeys, W, kThreads>(at + kKeys * padded(W), v + int64_t(key) * groups * e, int64_t(groups) * e, e,
                                    to - key);
    copies_commit();
  };
  float acc[W / 16][4];
#pragma unroll
  for (int n = 0; n < W / 16; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) acc[n][i] = 0;
  const int my_rows = (warp & 3) * 16, row = my_rows + lane / 4;
  if (from < to) fetch(from, 0);
  for (int key = from, stage = 0; key < to; key += kKeys, stage = (stage + 1) % L::kStages) {
    if (L::kStages == 2 && key + kKeys < to) {
      fetch(key + kKeys, stage ^ 1);
      copies_wait<1>();
    } else {
      copies_wait<0>();
    }
    __syncthreads();
    const bf16 *keys = stages + stage * L::kStage, *values = kSame ? keys : keys + kKeys * padded(W);
    float c[2][4] = {};
#pragma unroll
    for (int x = 0; x < W; x += 16) {
      uint32_t fa[4], fb[4];
      load_a(fa, q + my_rows * padded(W), padded(W), x);
      load_b_rows(fb, keys + (warp >> 2) * 16 * padded(W), padded(W), x);
      multiply_add(c[0], fa, fb[0], fb[1]);
      multiply_add(c[1], fa, fb[2], fb[3]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        s[(row + i / 2 * 8) * kLogits + (warp >> 2) * 16 + n * 8 + (lane & 3) * 2 + (i & 1)] = c[n][i] * a.scale;
    __syncthreads();
    {  // four threads a row, eight keys each
      const int r = threadIdx.x >> 2, part_at = (threadIdx.x & 3) * 8, limit = min(seen[r], to) - key;
      float line[8], now = top[r];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        line[j] = part_at + j < limit ? s[r * kLogits + part_at + j] : -INFINITY;
        now = fmaxf(now, line[j]);
      }
      now = quad_max(now);
      const float safe = now == -INFINITY ? 0.f : now;
      float add = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) line[j] = exp2f((line[j] - safe) * kLog2E), add += line[j];
      add = quad_sum(add);
#pragma unroll
      for (int j = 0; j < 8; j += 2)
        *reinterpret_cast<uint32_t*>(p + r * padded(kKeys) + part_at + j) = pack(line[j], line[j + 1]);
      __syncwarp();
      if ((threadIdx.x & 3) == 0) {
        shrink[r] = exp2f((top[r] - safe) * kLog2E);
        sum[r] = sum[r] * shrink[r] + add, top[r] = now;
      }
    }
    __syncthreads();
    const float by[2] = {shrink[row], shrink[row + 8]};
#pragma unroll
    for (int n = 0; n < W / 16; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[n][i] *= by[i / 2];
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) {
      uint32_t fa[4], fb[4];
      load_a(fa, p + my_rows * padded(kKeys), padded(kKeys), j * 16);
#pragma unroll
      for (int n = 0; n < W / 32; ++n) {
        load_b_columns(fb, values + j * 16 * padded(W), padded(W), (warp >> 2) * (W / 2) + n * 16);
        multiply_add(acc[2 * n], fa, fb[0], fb[1]);
        multiply_add(acc[2 * n + 1], fa, fb[2], fb[3]);
      }
    }
    __syncthreads();
    if (L::kStages == 1 && key + kKeys < to) fetch(key + kKeys, 0);
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (row + r * 8 >= rows) continue;
    const int64_t at = pair_of(row + r * 8);
    if (pieces.count > 1 && (lane & 3) == 0 && warp < 4)
      part_of[at * pieces.count + piece] = make_float2(top[row + r * 8], sum[row + r * 8]);
    const float by = 1 / sum[row + r * 8];
#pragma unroll
    for (int n = 0; n < W / 16; ++n)
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        const int x = (warp >> 2) * (W / 2) + n * 8 + (lane & 3) * 2 + (i & 1);
        if (x >= e) continue;
        if (pieces.count > 1)
          part[(at * pieces.count + piece) * e + x] = acc[n][i];
        else
          o[at * e + x] = __float2bfloat16(acc[n][i] * by);
      }
  }
}

template <int W, bool kSame>
void go(const CachedAttentionArgs& a, const AttentionTiles& t, const CachePieces& n, float2* part_of, float* part,
        cudaStream_t stream) {
  using L = Layout<W, kSame>;
  allow_shared(look_back<W, kSame>, L::kBytes, "attention_cached");
  look_back<W, kSame>
      <<<dim3(unsigned(t.most * a.groups), unsigned(n.count)), kThreads, L::kBytes, stream>>>(a, t, n, part_of, part);
  check_launch("attention_cached");
}
template <int W>
void go(const CachedAttentionArgs& a, const AttentionTiles& t, const CachePieces& n, float2* part_of, float* part,
        cudaStream_t stream) {
  if (a.k == a.v && a.key_width == a.value_width)
    go<W, true>(a, t, n, part_of, part, stream);
  else
    go<W, false>(a, t, n, part_of, part, stream);
}

int64_t pairs(const CachedAttentionArgs& a) { return a.tokens * (a.heads / a.groups); }
CachePieces pieces(const CachedAttentionArgs& a) {
  return cache_pieces((pairs(a) + kRows - 1) / kRows * a.groups, a.capacity, kKeys);
}

}  // namespace

size_t cached_attention_bf16_bytes(const CachedAttentionArgs& a) {
  return rounded(attention_tiles_bytes(pairs(a), a.documents)) + cache_parts_bytes(a, pieces(a));
}

void cached_attention_bf16(const CachedAttentionArgs& a, cudaStream_t stream) {
  const CachePieces n = pieces(a);
  const int each = int(a.heads / a.groups);
  const AttentionTiles t =
      attention_tiles(a.workspace, a.cu, a.tokens, a.documents, true, TileOrder::by_query, kRows, stream, each);
  float2* part_of = reinterpret_cast<float2*>(static_cast<char*>(a.workspace) +
                                              rounded(attention_tiles_bytes(pairs(a), a.documents)));
  float* part = reinterpret_cast<float*>(part_of + a.tokens * a.heads * n.count);
  const int64_t width = a.key_width > a.value_width ? a.key_width : a.value_width;
  if (width <= 64)
    go<64>(a, t, n, part_of, part, stream);
  else if (width <= 128)
    go<128>(a, t, n, part_of, part, stream);
  else if (width <= 320)
    go<320>(a, t, n, part_of, part, stream);
  else
    go<kCachedWidth>(a, t, n, part_of, part, stream);
  if (n.count > 1) cache_parts_meet(a, n, part_of, part, stream);
}

}  // namespace kb::cuda
