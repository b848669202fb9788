// attention_tiles.cu: cuts packed documents into tiles of rows on the device, so that the host never reads cu. One block
// counts, sorts the tiles by their work (longest first, so that the last wave of a launch is short) and writes them.
#include "attention_cuda.h"
#include "attention_device.cuh"

namespace kb::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kUnit = kAttentionTile;  // work is counted in rows of the other side, in these units

int64_t buckets(int64_t tokens) { return (tokens + kUnit - 1) / kUnit + 1; }

// Inclusive sum over the block; `warp` [32].
__device__ int32_t scan(int32_t x, int32_t* warp) {
  const int lane = threadIdx.x & 31, w = threadIdx.x >> 5;
  for (int i = 1; i < 32; i *= 2) {
    const int32_t y = __shfl_up_sync(~0u, x, i);
    if (lane >= i) x += y;
  }
  __syncthreads();
  if (lane == 31) warp[w] = x;
  __syncthreads();
  if (w == 0) {
    int32_t s = warp[lane];
    for (int i = 1; i < 32; i *= 2) {
      const int32_t y = __shfl_up_sync(~0u, s, i);
      if (lane >= i) s += y;
    }
    warp[lane] = s;
  }
  __syncthreads();
  return w ? x + warp[w - 1] : x;
}

// Ranges of rows: 0 is what lies before the documents, 1 .. documents are these, documents + 1 is what lies behind.
// Borders out of order or out of range are clamped: such a batch gives wrong numbers, never a wild address.
struct Range {
  int32_t begin, end;
};
__device__ Range range(const int32_t* cu, int32_t documents, int32_t tokens, int32_t times, int32_t i) {
  const auto border = [&](int32_t j) { return min(max(cu[j], 0), tokens) * times; };
  if (i == 0) return {0, documents ? border(0) : tokens * times};
  if (i > documents) return {documents ? border(documents) : tokens * times, tokens * times};
  const int32_t a = border(i - 1);
  return {a, max(a, border(i))};
}

__global__ void __launch_bounds__(kThreads)
    make_tiles(const int32_t* cu, int32_t documents, int32_t tokens, int32_t n_buckets, bool causal, bool by_key,
               int32_t rows, int32_t times, int32_t most, int32_t* count, int32_t* first, int32_t* bucket,
               AttentionTile* tile) {
  __shared__ int32_t warp[32];
  __shared__ int32_t carry;
  const int32_t ranges = documents + 2;
  if (threadIdx.x == 0) carry = 0;
  for (int32_t i = threadIdx.x; i < n_buckets; i += kThreads) bucket[i] = 0;
  __syncthreads();
  for (int32_t base = 0; base < ranges; base += kThreads) {  // first[i]: tiles before range i
    const int32_t i = base + threadIdx.x;
    int32_t n = 0;
    if (i < ranges) {
      const Range r = range(cu, documents, tokens, times, i);
      n = (r.end - r.begin + rows - 1) / rows;
    }
    const int32_t before = carry, upto = before + scan(n, warp);
    if (i < ranges) first[i] = upto - n;
    __syncthreads();
    if (threadIdx.x == kThreads - 1) carry = upto;
    __syncthreads();
  }
  const int32_t total = min(carry, most);
  const auto find = [&](int32_t i, int32_t& work) {
    int32_t low = 0, high = ranges - 1;  // the last range with first <= i that has tiles
    while (low < high) {
      const int32_t middle = (low + high + 1) / 2;
      if (first[middle] <= i)
        low = middle;
      else
        high = middle - 1;
    }
    const Range r = range(cu, documents, tokens, times, low);
    const bool document = low > 0 && low <= documents;
    AttentionTile t{r.begin + (i - first[low]) * rows, r.begin, r.end, document ? 0 : 1};
    const int32_t span = !causal ? t.end - t.begin : by_key ? t.end - t.row : t.row - t.begin + rows;
    work = document ? min((span + kUnit - 1) / kUnit, n_buckets - 1) : 0;
    return t;
  };
  __syncthreads();
  for (int32_t i = threadIdx.x; i < total; i += kThreads) {
    int32_t work;
    find(i, work);
    atomicAdd(bucket + work, 1);
  }
  if (threadIdx.x == 0) count[0] = total, count[1] = 0, carry = 0;
  __syncthreads();
  for (int32_t base = 0; base < n_buckets; base += kThreads) {  // place of each bucket, the largest first
    const int32_t b = n_buckets - 1 - base - int32_t(threadIdx.x), n = b >= 0 ? bucket[b] : 0;
    const int32_t before = carry, upto = before + scan(n, warp);
    if (b >= 0) bucket[b] = upto - n;
    __syncthreads();
    if (threadIdx.x == kThreads - 1) carry = upto;
    __syncthreads();
  }
  for (int32_t i = threadIdx.x; i < total; i += kThreads) {  // equal work in any order: no result depends on it
    int32_t work;
    const AttentionTile t = find(i, work);
    tile[atomicAdd(bucket + work, 1)] = t;
  }
}

}  // namespace

int64_t attention_tiles_most(int64_t tokens, int64_t documents, int rows) { return tokens / rows + documents + 2; }

size_t attention_tiles_bytes(int64_t tokens, int64_t documents) {
  return size_t(attention_tiles_most(tokens, documents)) * sizeof(AttentionTile) +
         size_t(16 + (documents + 2) + buckets(tokens) + 15) / 16 * 16 * sizeof(int32_t);
}

AttentionTiles attention_tiles(void* memory, const int32_t* cu, int64_t tokens, int64_t documents, bool causal,
                               TileOrder order, int rows, cudaStream_t stream, int times) {
  AttentionTiles t;
  t.most = attention_tiles_most(tokens * times, documents, rows);
  t.tile = static_cast<AttentionTile*>(memory);
  t.count = reinterpret_cast<int32_t*>(t.tile + t.most);
  t.next = t.count + 1;
  int32_t *first = t.count + 16, *bucket = first + documents + 2;
  make_tiles<<<1, kThreads, 0, stream>>>(cu, int32_t(documents), int32_t(tokens), int32_t(buckets(tokens * times)),
                                         causal, order == TileOrder::by_key, rows, times, int32_t(t.most), t.count,
                                         first, bucket, t.tile);
  check_launch("attention tiles");
  return t;
}

}  // namespace kb::cuda
