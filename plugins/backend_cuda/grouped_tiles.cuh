// grouped_tiles.cuh: which tile of the result a cluster works on. One thread walks the list ahead of all others and hands
// tiles on through a ring in shared memory, so that nobody waits for offsets.
#pragma once
#include <cstdint>

#include "hopper.cuh"

namespace kb::cuda {

constexpr int kTileRows = 128, kBoxSide = 64;  // a tile has 128 rows and Cols columns: 128, 192, 224, 240 or 256

struct GroupedWork {
  const int32_t* offsets;  // [experts + 1]
  void* y;                 // bf16; outer: or f32
  int experts;
  int rows;      // linear: rows of y, bound
  int m;         // outer: rows of an expert's result
  int n;         // columns of the result
  int k_blocks;  // linear: blocks of 64 of the inner width
  int across;    // tiles that n takes
  bool add;
};

// A pair of tiles, one a CTA of the cluster, that share an operand: each CTA loads half of it for both.
struct alignas(16) Tile {
  int expert, begin, count;  // rows of the expert: [begin, begin + count)
  int m, n;                  // of the tile, in rows and columns of the expert's result
  int k_blocks;
  bool share_a;  // same m, else same n
  bool valid;    // false: the other CTA works alone
};

// Experts by falling count, for outer products: their tiles take as long as the expert has rows. Every thread of the CTA;
// more experts than kSorted keep their order, since many tiles even out by themselves. counts [kSorted]: scratch.
constexpr int kSorted = 384;
__device__ inline void sort_experts(const GroupedWork& g, int* counts, uint16_t* order, int thread, int threads) {
  const bool sorted = g.experts <= kSorted;
  for (int e = thread; e < g.experts && sorted; e += threads)
    counts[e] = __ldg(g.offsets + e + 1) - __ldg(g.offsets + e);
  __syncthreads();
  for (int e = thread; e < g.experts && sorted; e += threads) {
    const int mine = counts[e];
    int before = 0;
    for (int i = 0; i < g.experts; ++i) before += counts[i] > mine || (counts[i] == mine && i < e);
    order[before] = uint16_t(e);
  }
}

// Tiles pair up along m; an odd last row of tiles pairs up along n.
template <bool Outer, int Cols>
class TileList {
 public:
  // order: of the experts, or null
  __device__ TileList(const GroupedWork& g, const uint16_t* order, int cluster, int clusters, int rank)
      : g_(g),
        order_(order),
        item_(cluster),
        step_(2 * clusters - 1 - 2 * cluster),
        back_(2 * cluster + 1),
        rank_(rank) {}
  __device__ bool next(Tile& t) {
    int expert, begin, count, tiles_m, pairs;
    while (true) {
      if (at_ == g_.experts) return false;
      expert = Outer && order_ ? order_[at_] : at_;
      begin = __ldg(g_.offsets + expert), count = __ldg(g_.offsets + expert + 1) - begin;
      tiles_m = ((Outer ? g_.m : count) + kTileRows - 1) / kTileRows;
      pairs = tiles_m / 2 * g_.across;
      const int items = pairs + (tiles_m & 1) * ((g_.across + 1) / 2);
      if (item_ < before_ + items) break;
      before_ += items, ++at_;
    }
    const int i = item_ - before_;
    // The clusters take turns forward and backward, so that who got the longest of one round gets the shortest of the next.
    item_ += step_;
    const int other = step_;
    step_ = back_, back_ = other;
    t.expert = expert, t.begin = begin, t.count = count;
    t.k_blocks = Outer ? (count + kBoxSide - 1) / kBoxSide : g_.k_blocks;
    t.share_a = i >= pairs;
    const int n = t.share_a ? (i - pairs) * 2 + rank_ : i % g_.across;
    t.m = (t.share_a ? tiles_m - 1 : i / g_.across * 2 + rank_) * kTileRows;
    t.n = n * Cols;
    t.valid = n < g_.across;
    return true;
  }

 private:
  const GroupedWork& g_;
  const uint16_t* order_;
  int item_, step_, back_, rank_;
  int at_ = 0, before_ = 0;
};

constexpr int kRing = 4;
struct TileRing {
  Tile tile[kRing];
  uint64_t full[kRing], empty[kRing];

  __device__ void init(uint32_t readers) {
    for (int i = 0; i < kRing; ++i) {
      hopper::barrier_init(hopper::shared_address(&full[i]), 1);
      hopper::barrier_init(hopper::shared_address(&empty[i]), readers);
    }
  }
  // The one writer, a single thread.
  template <class List>
  __device__ void fill(List& list) {
    Tile t;
    bool more = true;
    for (uint32_t n = 0; more; ++n) {
      const uint32_t at = n % kRing;
      more = list.next(t);
      if (!more) t.expert = -1;
      hopper::barrier_wait(hopper::shared_address(&empty[at]), (n / kRing & 1) ^ 1);
      tile[at] = t;
      hopper::barrier_arrive(hopper::shared_address(&full[at]));
    }
  }
};

// A reader: a whole warp, or a single thread.
class TileReader {
 public:
  __device__ explicit TileReader(TileRing& ring) : ring_(ring) {}
  template <bool Warp>
  __device__ bool next(Tile& t) {
    const uint32_t at = n_ % kRing;
    hopper::barrier_wait(hopper::shared_address(&ring_.full[at]), n_ / kRing & 1);
    t = ring_.tile[at];
    ++n_;
    if constexpr (Warp) __syncwarp();
    if (!Warp || threadIdx.x % 32 == 0) hopper::barrier_arrive(hopper::shared_address(&ring_.empty[at]));
    return t.expert >= 0;
  }

 private:
  TileRing& ring_;
  uint32_t n_ = 0;
};

}  // namespace kb::cuda
