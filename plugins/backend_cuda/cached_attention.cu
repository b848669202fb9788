// cached_attention.cu: serving: rows are appended to a cache, and queries look back over it (f32, and bf16 of any width; most
// of bf16 is cached_attention_bf16.cu). A block takes one new token, up
// to eight heads that share a key head, and a piece of the cached keys; pieces meet in a second kernel, in a fixed order.
#include "attention_device.cuh"
#include "attention_mma.cuh"
#include "cached_attention.cuh"

namespace kb::cuda {
namespace {

constexpr int kThreads = 256, kHeads = 8, kKeys = 32, kColumns = 3;  // kColumns * kThreads channels of a value a block

__device__ float value(float x) { return x; }
__device__ float value(bf16 x) { return __bfloat162float(x); }
__device__ void put(float* to, float x) { *to = x; }
__device__ void put(bf16* to, float x) { *to = __float2bfloat16(x); }

CachePieces pieces(const CachedAttentionArgs& a) {
  const int64_t each = a.heads / a.groups;
  return cache_pieces(a.tokens * a.groups * ((each + kHeads - 1) / kHeads), a.capacity, kKeys);
}

// part: [tokens, heads, pieces] of (top, sum), then [tokens, heads, pieces, value_width]; null when there is one piece.
template <class T>
__global__ void __launch_bounds__(kThreads)
    look_back(CachedAttentionArgs a, int n_pieces, int piece_keys, float2* part_of, float* part) {
  extern __shared__ __align__(16) float memory[];
  const int d = int(a.key_width), e = int(a.value_width), each = int(a.heads / a.groups), h = int(a.heads);
  const int blocks = (each + kHeads - 1) / kHeads;
  const int64_t token = blockIdx.x / (a.groups * blocks);
  const int group = int(blockIdx.x / blocks % a.groups), first = group * each + int(blockIdx.x % blocks) * kHeads;
  const int heads = min(kHeads, (group + 1) * each - first), piece = blockIdx.y;
  const int column = int(blockIdx.z) * kColumns * kThreads + threadIdx.x;
  const int document = document_of(a.cu, int(a.documents), int(token));
  T* o = static_cast<T*>(a.o) + (token * h + first) * e;
  int64_t slot = document < 0 ? -1 : a.slot ? a.slot[document] : document;
  if (slot >= a.slots) slot = -1;
  if (slot < 0) {
    if (piece == 0)
      for (int y = 0; y < heads; ++y)
        for (int c = 0; c < kColumns; ++c)
          if (column + c * kThreads < e) put(o + int64_t(y) * e + column + c * kThreads, 0.f);
    return;
  }
  const int seen = int(min(int64_t(a.past[document]) + token - a.cu[document] + 1, a.capacity));
  const int from = piece * piece_keys, to = min(seen, from + piece_keys);
  float* q = memory;                   // [kHeads, d]
  float* p = q + kHeads * d;           // [kHeads, kKeys]
  float* shrink = p + kHeads * kKeys;  // [kHeads]
  const T* query = static_cast<const T*>(a.q) + (token * h + first) * d;
  for (int i = threadIdx.x; i < kHeads * d; i += kThreads) q[i] = i < heads * d ? value(query[i]) * a.scale : 0.f;
  const T* k = static_cast<const T*>(a.k) + (slot * a.capacity * a.groups + group) * d;
  const T* v = static_cast<const T*>(a.v) + (slot * a.capacity * a.groups + group) * e;
  const int64_t k_row = a.groups * d, v_row = a.groups * e;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  float acc[kHeads][kColumns];
#pragma unroll
  for (int y = 0; y < kHeads; ++y)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) acc[y][c] = 0;
  float top = -INFINITY, sum = 0;  // of head `warp`
  for (int key = from; key < to; key += kKeys) {
    const int keys = min(kKeys, to - key);
    __syncthreads();
    for (int j = warp; j < kKeys; j += kThreads / 32) {
      float s[kHeads];
#pragma unroll
      for (int y = 0; y < kHeads; ++y) s[y] = 0;
      if (j < keys) {
        const T* row = k + int64_t(key + j) * k_row;
        for (int x = lane; x < d; x += 32) {
          const float b = value(row[x]);
#pragma unroll
          for (int y = 0; y < kHeads; ++y) s[y] += q[y * d + x] * b;
        }
      }
#pragma unroll
      for (int y = 0; y < kHeads; ++y) {
        for (int i = 16; i; i /= 2) s[y] += __shfl_xor_sync(~0u, s[y], i);
        if (lane == 0) p[y * kKeys + j] = j < keys ? s[y] : -INFINITY;
      }
    }
    __syncthreads();
    {  // warp y: head y, a key a lane
      const float s = p[warp * kKeys + lane];
      float now = s;
      for (int i = 16; i; i /= 2) now = fmaxf(now, __shfl_xor_sync(~0u, now, i));
      now = fmaxf(now, top);
      const float safe = now == -INFINITY ? 0.f : now, w = expf(s - safe), old = expf(top - safe);
      float add = w;
      for (int i = 16; i; i /= 2) add += __shfl_xor_sync(~0u, add, i);
      sum = sum * old + add, top = now;
      p[warp * kKeys + lane] = w;
      if (lane == 0) shrink[warp] = old;
    }
    __syncthreads();
#pragma unroll
    for (int y = 0; y < kHeads; ++y)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) acc[y][c] *= shrink[y];
    for (int j = 0; j < keys; ++j) {
      float b[kColumns];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int x = column + c * kThreads;
        b[c] = x < e ? value(v[int64_t(key + j) * v_row + x]) : 0.f;
      }
#pragma unroll
      for (int y = 0; y < kHeads; ++y)
#pragma unroll
        for (int c = 0; c < kColumns; ++c) acc[y][c] += p[y * kKeys + j] * b[c];
    }
  }
  __syncthreads();
  if (lane == 0) shrink[warp] = n_pieces > 1 ? 1.f : 1 / sum;
  if (n_pieces > 1 && lane == 0 && warp < heads && blockIdx.z == 0)
    part_of[(token * h + first + warp) * n_pieces + piece] = make_float2(top, sum);
  __syncthreads();
  for (int y = 0; y < heads; ++y)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int x = column + c * kThreads;
      if (x >= e) continue;
      float r = 0;  // acc[y][c] with constant indices
#pragma unroll
      for (int z = 0; z < kHeads; ++z) r = z == y ? acc[z][c] : r;
      if (n_pieces > 1)
        part[((token * h + first + y) * n_pieces + piece) * e + x] = r;
      else
        put(o + int64_t(y) * e + x, r * shrink[y]);
    }
}

// A block a row of o.
template <class T>
__global__ void __launch_bounds__(128) meet(CachedAttentionArgs a, int n_pieces, int piece_keys,
                                            const float2* __restrict__ part_of, const float* __restrict__ part) {
  const int64_t row = blockIdx.x, token = row / a.heads;
  const int document = document_of(a.cu, int(a.documents), int(token)), e = int(a.value_width);
  if (document < 0) return;  // is zero already
  const int64_t slot = a.slot ? a.slot[document] : document;
  if (slot < 0 || slot >= a.slots) return;
  const int seen = int(min(int64_t(a.past[document]) + token - a.cu[document] + 1, a.capacity));
  const int pieces = min(n_pieces, (seen + piece_keys - 1) / piece_keys);
  float top = -INFINITY, sum = 0;
  for (int i = 0; i < pieces; ++i) top = fmaxf(top, part_of[row * n_pieces + i].x);
  for (int i = 0; i < pieces; ++i) sum += part_of[row * n_pieces + i].y * expf(part_of[row * n_pieces + i].x - top);
  for (int x = threadIdx.x; x < e; x += 128) {
    float s = 0;
    for (int i = 0; i < pieces; ++i)
      s += part[(row * n_pieces + i) * e + x] * expf(part_of[row * n_pieces + i].x - top);
    put(static_cast<T*>(a.o) + row * e + x, s / sum);
  }
}

template <class T>
void run(const CachedAttentionArgs& a, cudaStream_t stream) {
  const CachePieces n = pieces(a);
  const int64_t each = a.heads / a.groups, rows = a.tokens * a.heads;
  const size_t shared = sizeof(float) * size_t(kHeads * a.key_width + kHeads * kKeys + kHeads);
  allow_shared(look_back<T>, shared, "attention_cached");
  float2* part_of = static_cast<float2*>(a.workspace);
  float* part = reinterpret_cast<float*>(part_of + rows * n.count);
  const dim3 grid(unsigned(a.tokens * a.groups * ((each + kHeads - 1) / kHeads)), unsigned(n.count),
                  unsigned((a.value_width + kColumns * kThreads - 1) / (kColumns * kThreads)));
  look_back<T><<<grid, kThreads, shared, stream>>>(a, int(n.count), int(n.keys), part_of, part);
  check_launch("attention_cached");
  if (n.count > 1) cache_parts_meet(a, n, part_of, part, stream);
}

bool takes_mma(const CachedAttentionArgs& a) {
  return a.bf16 && a.key_width <= kCachedWidth && a.value_width <= kCachedWidth;
}

template <class V>
__global__ void __launch_bounds__(kThreads) append(CacheAppendArgs a, int64_t width) {  // width: V of a row
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= a.tokens * width) return;
  const int64_t row = i / width;
  const int document = document_of(a.cu, int(a.documents), int(row));
  if (document < 0) return;
  const int64_t slot = a.slot ? a.slot[document] : document, at = int64_t(a.past[document]) + row - a.cu[document];
  if (slot < 0 || slot >= a.slots || at < 0 || at >= a.capacity)
    return;  // the host does not let a sequence grow so long
  static_cast<V*>(a.cache)[(slot * a.capacity + at) * width + i % width] = static_cast<const V*>(a.rows)[i];
}

}  // namespace

CachePieces cache_pieces(int64_t blocks, int64_t capacity, int64_t unit) {
  constexpr int64_t kLeast = 256, kMost = 64,
                    kEnough = 2 * 132;  // keys of a piece; pieces; blocks that fill a large device
  int64_t n = blocks > 0 ? (kEnough + blocks - 1) / blocks : 1;
  if (n > (capacity + kLeast - 1) / kLeast) n = (capacity + kLeast - 1) / kLeast;
  if (n > kMost) n = kMost;
  if (n < 1) n = 1;
  int64_t keys = ((capacity + n - 1) / n + unit - 1) / unit * unit;
  if (keys < unit) keys = unit;
  return {n, keys};
}
size_t cache_parts_bytes(const CachedAttentionArgs& a, const CachePieces& n) {
  return n.count > 1 ? size_t(a.tokens * a.heads * n.count) * (sizeof(float2) + size_t(a.value_width) * sizeof(float))
                     : 0;
}
void cache_parts_meet(const CachedAttentionArgs& a, const CachePieces& n, const float2* part_of, const float* part,
                      cudaStream_t stream) {
  const unsigned rows = unsigned(a.tokens * a.heads);
  if (a.bf16)
    meet<bf16><<<rows, 128, 0, stream>>>(a, int(n.count), int(n.keys), part_of, part);
  else
    meet<float><<<rows, 128, 0, stream>>>(a, int(n.count), int(n.keys), part_of, part);
  check_launch("attention_cached");
}

size_t cached_attention_bytes(const CachedAttentionArgs& a) {
  return takes_mma(a) ? cached_attention_bf16_bytes(a) : cache_parts_bytes(a, pieces(a));
}

void cached_attention(const CachedAttentionArgs& a, cudaStream_t stream) {
  if (a.tokens == 0) return;
  if (takes_mma(a))
    cached_attention_bf16(a, stream);
  else if (a.bf16)
    run<bf16>(a, stream);
  else
    run<float>(a, stream);
}

void cache_append(const CacheAppendArgs& a, cudaStream_t stream) {
  if (a.tokens * a.bytes == 0) return;
  const auto go = [&]<class V>(V) {
    const int64_t width = a.bytes / int64_t(sizeof(V)), n = a.tokens * width;
    append<V><<<unsigned((n + kThreads - 1) / kThreads), kThreads, 0, stream>>>(a, width);
  };
  if (a.bytes % 16 == 0)
    go(uint4{});
  else if (a.bytes % 4 == 0)
    go(uint32_t{});
  else
    go(uint8_t{});
  check_launch("cache_append");
}

}  // namespace kb::cuda
