// attention_f32.cu: attention and its gradients in true fp32 on the ordinary cores, any widths up to 256, deterministic.
// A block of 256 threads owns 64 rows of one head and walks over tiles of 32 rows of the other side. Rows of a tile lie an
// odd number of floats apart, so that a column of rows is free of bank conflicts.
#include "attention_device.cuh"

namespace kb::cuda {
namespace {

constexpr int kThreads = 256, kRows = kAttentionTile, kOther = 32, kStride = kOther + 1;

__device__ void load(float* to, const float* from, int64_t stride, int width, int rows, int valid) {
  for (int i = threadIdx.x; i < rows * width; i += kThreads) {
    const int r = i / width, c = i % width;
    to[r * (width | 1) + c] = r < valid ? from[r * stride + c] : 0.f;
  }
}
// c[i][j] = mine row (y + 16 i) . other row (x + 16 j), where x, y = thread % 16, thread / 16
__device__ void products(float (&c)[4][2], const float* mine, const float* other, int width) {
  const int x = threadIdx.x & 15, y = threadIdx.x >> 4, row = width | 1;
  for (int i = 0; i < 4; ++i) c[i][0] = c[i][1] = 0;
  for (int k = 0; k < width; ++k) {
    float b[2];
    for (int j = 0; j < 2; ++j) b[j] = other[(x + 16 * j) * row + k];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float a = mine[(y + 16 * i) * row + k];
      c[i][0] += a * b[0], c[i][1] += a * b[1];
    }
  }
}
// acc[i][c]: rows y + 16 i, columns x + 16 c; adds p [kRows, kOther] tile [kOther, width]
template <int C>
__device__ void gather(float (&acc)[4][C], const float* p, const float* tile, int width) {
  const int x = threadIdx.x & 15, y = threadIdx.x >> 4, row = width | 1;
  for (int j = 0; j < kOther; ++j) {
    float w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = p[(y + 16 * i) * kStride + j];
#pragma unroll
    for (int c = 0; c < C; ++c) {
      const float b = x + 16 * c < width ? tile[j * row + x + 16 * c] : 0.f;
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[i][c] += w[i] * b;
    }
  }
}
template <int C>
__device__ void clear(float (&acc)[4][C]) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int c = 0; c < C; ++c) acc[i][c] = 0;
}
template <int C>
__device__ void store(float* to, int64_t stride, int width, int rows, const float (&acc)[4][C], const float (&by)[4]) {
  const int x = threadIdx.x & 15, y = threadIdx.x >> 4;
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int c = 0; c < C; ++c)
      if (y + 16 * i < rows && x + 16 * c < width) to[(y + 16 * i) * stride + x + 16 * c] = acc[i][c] * by[i];
}
__device__ void zero_rows(float* to, int64_t stride, int width, int rows) {
  for (int i = threadIdx.x; to && i < rows * width; i += kThreads) to[i / width * stride + i % width] = 0;
}

size_t forward_shared(int64_t d, int64_t e) {
  return sizeof(float) * size_t((kRows + kOther) * (d | 1) + kOther * (e | 1) + kRows * kStride + 3 * kRows);
}

template <int C>
__global__ void __launch_bounds__(kThreads) forward(AttentionForwardArgs a, const int32_t* __restrict__ count,
                                                    const AttentionTile* __restrict__ tiles, float* found) {
  extern __shared__ __align__(16) float memory[];
  const int heads = int(a.s.heads), groups = int(a.s.groups), d = int(a.s.key_width), e = int(a.s.value_width);
  const int tile = int(blockIdx.x) / heads, head = int(blockIdx.x) % heads, group = head / (heads / groups);
  if (tile >= *count) return;
  const AttentionTile t = tiles[tile];
  const int rows = min(kRows, t.end - t.row);
  const int64_t at = int64_t(t.row) * heads + head;
  float* o = static_cast<float*>(a.o);
  if (t.kind) {
    if (o) zero_rows(o + at * e, int64_t(heads) * e, e, rows);
    if (a.lse) zero_rows(a.lse + at, heads, 1, rows);
    if (found && threadIdx.x == 0) found[int64_t(tile) * heads + head] = -INFINITY;
    return;
  }
  float *q = memory, *k = q + kRows * (d | 1), *v = k + kOther * (d | 1), *p = v + kOther * (e | 1);
  float *top = p + kRows * kStride, *sum = top + kRows, *shrink = sum + kRows;
  load(q, static_cast<const float*>(a.q) + at * d, int64_t(heads) * d, d, kRows, rows);
  for (int i = threadIdx.x; i < kRows; i += kThreads) top[i] = -INFINITY, sum[i] = 0;
  const int length = t.end - t.begin, index = t.row - t.begin, seen = a.s.causal ? min(index + kRows, length) : length;
  const int x = threadIdx.x & 15, y = threadIdx.x >> 4;
  float acc[4][C];
  clear(acc);
  for (int key = 0; key < seen; key += kOther) {
    const int64_t from = int64_t(t.begin + key) * groups + group;
    __syncthreads();
    load(k, static_cast<const float*>(a.k) + from * d, int64_t(groups) * d, d, kOther, length - key);
    load(v, static_cast<const float*>(a.v) + from * e, int64_t(groups) * e, e, kOther, length - key);
    __syncthreads();
    float s[4][2];
    products(s, q, k, d);
#pragma unroll
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 2; ++j) {
        const int at_key = key + x + 16 * j;
        const bool out = at_key >= length || (a.s.causal && at_key > index + y + 16 * i);
        p[(y + 16 * i) * kStride + x + 16 * j] = out ? -INFINITY : s[i][j] * a.s.scale;
      }
    __syncthreads();
    {  // four threads a row
      const int row = threadIdx.x >> 2, part = (threadIdx.x & 3) * (kOther / 4);
      float* line = p + row * kStride + part;
      float most = top[row];
      for (int j = 0; j < kOther / 4; ++j) most = fmaxf(most, line[j]);
      most = quad_max(most);
      const float safe = most == -INFINITY ? 0.f : most;
      float add = 0;
      for (int j = 0; j < kOther / 4; ++j) line[j] = expf(line[j] - safe), add += line[j];
      add = quad_sum(add);
      __syncwarp();
      if ((threadIdx.x & 3) == 0) {
        shrink[row] = expf(top[row] - safe);
        sum[row] = sum[row] * shrink[row] + add;
        top[row] = most;
      }
    }
    __syncthreads();
    if (!o) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float by = shrink[y + 16 * i];
#pragma unroll
      for (int c = 0; c < C; ++c) acc[i][c] *= by;
    }
    gather(acc, p, v, e);
  }
  __syncthreads();
  float by[4];
  for (int i = 0; i < 4; ++i) by[i] = 1 / sum[y + 16 * i];
  if (o) store(o + at * e, int64_t(heads) * e, e, rows, acc, by);
  for (int i = threadIdx.x; a.lse && i < rows; i += kThreads) a.lse[at + int64_t(i) * heads] = top[i] + logf(sum[i]);
  if (found && threadIdx.x == 0) {
    float most = -INFINITY;
    for (int i = 0; i < rows; ++i) most = fmaxf(most, top[i]);
    found[int64_t(tile) * heads + head] = most;
  }
}

size_t backward_shared(int64_t d, int64_t e) {
  return sizeof(float) * size_t((kRows + kOther) * ((d | 1) + (e | 1)) + 2 * kRows * kStride + 2 * kRows);
}

// As in attention_backward_bf16.cu: `mine` are the rows of the block (queries, or keys when kKeys).
template <int C, bool kKeys>
__global__ void __launch_bounds__(kThreads, 1)
    backward(AttentionBackwardArgs a, const float* __restrict__ delta, const int32_t* __restrict__ count,
             const AttentionTile* __restrict__ tiles) {
  extern __shared__ __align__(16) float memory[];
  const int heads = int(a.s.heads), groups = int(a.s.groups), d = int(a.s.key_width), e = int(a.s.value_width);
  const int mine_heads = kKeys ? groups : heads, other_heads = kKeys ? heads : groups, each = heads / groups;
  const int tile = int(blockIdx.x) / mine_heads, head = int(blockIdx.x) % mine_heads;
  if (tile >= *count) return;
  const AttentionTile t = tiles[tile];
  const int rows = min(kRows, t.end - t.row);
  const int64_t at = int64_t(t.row) * mine_heads + head;
  float *out_d = static_cast<float*>(kKeys ? a.dk : a.dq), *out_e = static_cast<float*>(kKeys ? a.dv : nullptr);
  if (t.kind) {
    if (out_d) zero_rows(out_d + at * d, int64_t(mine_heads) * d, d, rows);
    if (out_e) zero_rows(out_e + at * e, int64_t(mine_heads) * e, e, rows);
    return;
  }
  const float *q = static_cast<const float*>(a.q), *k = static_cast<const float*>(a.k);
  const float *v = static_cast<const float*>(a.v), *up = static_cast<const float*>(a.up);
  float *mine_d = memory, *mine_e = mine_d + kRows * (d | 1), *other_d = mine_e + kRows * (e | 1);
  float *other_e = other_d + kOther * (d | 1), *ds = other_e + kOther * (e | 1), *p = ds + kRows * kStride;
  float *lse_of = p + kRows * kStride, *delta_of = lse_of + kRows;  // of the queries: mine, or the other's
  load(mine_d, (kKeys ? k : q) + at * d, int64_t(mine_heads) * d, d, kRows, rows);
  load(mine_e, (kKeys ? v : up) + at * e, int64_t(mine_heads) * e, e, kRows, rows);
  if (!kKeys)
    for (int i = threadIdx.x; i < kRows; i += kThreads) {
      lse_of[i] = i < rows ? a.lse[at + int64_t(i) * heads] : 0;
      delta_of[i] = i < rows ? delta[at + int64_t(i) * heads] : 0;
    }
  const int length = t.end - t.begin, index = t.row - t.begin;
  const int from = kKeys && a.s.causal ? index : 0, to = !kKeys && a.s.causal ? min(index + kRows, length) : length;
  const int x = threadIdx.x & 15, y = threadIdx.x >> 4;
  float acc_d[4][C], acc_e[4][kKeys ? C : 1];
  clear(acc_d), clear(acc_e);
  for (int h = kKeys ? head * each : head / each, n = kKeys ? each : 1; n > 0; --n, ++h)
    for (int first = from; first < to; first += kOther) {
      const int64_t other_at = int64_t(t.begin + first) * other_heads + h;
      __syncthreads();
      load(other_d, (kKeys ? q : k) + other_at * d, int64_t(other_heads) * d, d, kOther, length - first);
      load(other_e, (kKeys ? up : v) + other_at * e, int64_t(other_heads) * e, e, kOther, length - first);
      if (kKeys && threadIdx.x < kOther) {
        const bool in = first + int(threadIdx.x) < length;
        lse_of[threadIdx.x] = in ? a.lse[other_at + int64_t(threadIdx.x) * heads] : 0;
        delta_of[threadIdx.x] = in ? delta[other_at + int64_t(threadIdx.x) * heads] : 0;
      }
      __syncthreads();
      float s[4][2], dp[4][2];
      products(s, mine_d, other_d, d);
      products(dp, mine_e, other_e, e);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 2; ++j) {
          const int m = index + y + 16 * i, o = first + x + 16 * j, query = kKeys ? x + 16 * j : y + 16 * i;
          const bool out = m >= length || o >= length || (a.s.causal && (kKeys ? o < m : o > m));
          const float probability = out ? 0.f : expf(s[i][j] * a.s.scale - lse_of[query]);
          p[(y + 16 * i) * kStride + x + 16 * j] = probability;
          // A query with one key has the weight 1 whatever its logit: rounding must leave no gradient.
          const bool alone = (kKeys ? o : m) == 0 && (a.s.causal || length == 1);
          ds[(y + 16 * i) * kStride + x + 16 * j] = out || alone ? 0.f : probability * (dp[i][j] - delta_of[query]);
        }
      __syncthreads();
      if (out_d) gather(acc_d, ds, other_d, d);
      if constexpr (kKeys)
        if (out_e) gather(acc_e, p, other_e, e);
    }
  const float scale[4] = {a.s.scale, a.s.scale, a.s.scale, a.s.scale}, one[4] = {1, 1, 1, 1};
  if (out_d) store(out_d + at * d, int64_t(mine_heads) * d, d, rows, acc_d, scale);
  if constexpr (kKeys)
    if (out_e) store(out_e + at * e, int64_t(mine_heads) * e, e, rows, acc_e, one);
}

template <int C>
void run_forward(const AttentionForwardArgs& a, const AttentionTiles& t, float* found, cudaStream_t stream) {
  const size_t shared = forward_shared(a.s.key_width, a.s.value_width);
  allow_shared(forward<C>, shared, "attention");
  forward<C><<<unsigned(t.most * a.s.heads), kThreads, shared, stream>>>(a, t.count, t.tile, found);
  check_launch("attention");
}
template <int C, bool kKeys>
void run_backward(const AttentionBackwardArgs& a, const float* delta, cudaStream_t stream) {
  const AttentionTiles t = attention_tiles(a.workspace, a.cu, a.s.tokens, a.s.documents, a.s.causal,
                                           kKeys ? TileOrder::by_key : TileOrder::by_query, kRows, stream);
  const size_t shared = backward_shared(a.s.key_width, a.s.value_width);
  allow_shared(backward<C, kKeys>, shared, "attention_backward");
  const int64_t heads = kKeys ? a.s.groups : a.s.heads;
  backward<C, kKeys><<<unsigned(t.most * heads), kThreads, shared, stream>>>(a, delta, t.count, t.tile);
  check_launch("attention_backward");
}

}  // namespace

void attention_forward_f32(const AttentionForwardArgs& a, cudaStream_t stream) {
  const AttentionTiles t =
      attention_tiles(a.workspace, a.cu, a.s.tokens, a.s.documents, a.s.causal, TileOrder::by_query, kRows, stream);
  float* found = a.peak ? attention_found(a) : nullptr;
  if (a.s.value_width <= 64)
    run_forward<4>(a, t, found, stream);
  else if (a.s.value_width <= 128)
    run_forward<8>(a, t, found, stream);
  else
    run_forward<16>(a, t, found, stream);
  if (a.peak) attention_peak(found, t.count, 1, a.s.heads, a.peak, stream);
}

void attention_backward_f32(const AttentionBackwardArgs& a, cudaStream_t stream) {
  if (!a.dq && !a.dk && !a.dv) return;
  float* delta = attention_delta(a);
  attention_delta_f32(a.o, a.up, a.s.tokens * a.s.heads, a.s.value_width, delta, stream);
  const int64_t wide = a.s.key_width > a.s.value_width ? a.s.key_width : a.s.value_width;
  if (wide <= 64) {
    if (a.dq) run_backward<4, false>(a, delta, stream);
    if (a.dk || a.dv) run_backward<4, true>(a, delta, stream);
  } else if (wide <= 128) {
    if (a.dq) run_backward<8, false>(a, delta, stream);
    if (a.dk || a.dv) run_backward<8, true>(a, delta, stream);
  } else {
    if (a.dq) run_backward<16, false>(a, delta, stream);
    if (a.dk || a.dv) run_backward<16, true>(a, delta, stream);
  }
}

}  // namespace kb::cuda
