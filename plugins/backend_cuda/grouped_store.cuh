// grouped_store.cuh: from the registers of a warpgroup to its 64 rows of a tile of the result. d of a warpgroup, 64 x Cols:
// lane l of warp w has, in column groups of 8, numbers 2 (l % 4) and the next of rows 16 w + l / 4 and 8 further.
#pragma once
#include <cuda_bf16.h>

#include "grouped_tiles.cuh"
#include "hopper.cuh"

namespace kb::cuda {

constexpr uint32_t kStaging = 2 * kBoxSide * 128;  // bytes of a warpgroup: two boxes of 64 rows of 128 bytes

// Where a warpgroup writes: by the copy engine through `staging`, or where a segment ends inside its rows by itself.
struct Target {
  const GroupedWork& g;
  const CUtensorMap& map;   // in boxes of 128 bytes
  const CUtensorMap& rest;  // in boxes of what a tile's columns leave over
  uint32_t staging;
  int group;  // of the CTA's two
};

// Where a row of the tile begins in y; rows at and past the limit are not the tile's.
template <bool Outer, class Out>
__device__ Out* row_of(const GroupedWork& g, const Tile& t, int row) {
  return static_cast<Out*>(g.y) + ((Outer ? int64_t(t.expert) * g.m : int64_t(t.begin)) + row) * g.n + t.n;
}
template <bool Outer>
__device__ int row_limit(const GroupedWork& g, const Tile& t) {
  return Outer ? g.m : t.count;
}

// What will be added to is on its way to the L2 while the tile is multiplied: two threads a row.
template <bool Outer, int Cols>
__device__ void fetch_old(const GroupedWork& g, const Tile& t, int group) {
  constexpr int kLine = 64, kLines = (Cols + 127) / 128;
  const int thread = int(threadIdx.x % 128), row = t.m + group * 64 + thread / 2, first = thread % 2 * kLines * kLine;
  if (row >= row_limit<Outer>(g, t)) return;
  const auto* at = row_of<Outer, __nv_bfloat16>(g, t, row);
#pragma unroll
  for (int i = 0; i < kLines; ++i)
    if (first + i * kLine < Cols && t.n + first + i * kLine < g.n) hopper::prefetch_l2(at + first + i * kLine);
}

// Among four neighbouring lanes: x[j] of lane i and x[i] of lane j change places.
__device__ inline void turn(uint32_t (&x)[4], int lane) {
#pragma unroll
  for (int bit = 1; bit < 4; bit *= 2) {
    const bool upper = lane & bit;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int low = bit == 1 ? 2 * i : i, high = low + bit;
      const uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? x[low] : x[high], bit);
      (upper ? x[low] : x[high]) = got;
    }
  }
}
__device__ inline uint32_t pack(float x, float y) {
  const __nv_bfloat162 p = __floats2bfloat162_rn(x, y);
  return *reinterpret_cast<const uint32_t*>(&p);
}

// d += what y holds: 16 bytes a lane, turned into the order of d.
template <bool Outer, int Cols>
__device__ void add_old(const GroupedWork& g, const Tile& t, int group, float (&d)[128]) {
  constexpr int kQuads = (Cols + 31) / 32;
  const int lane = int(threadIdx.x % 32), q = lane % 4;
  const int row = t.m + group * 64 + int(threadIdx.x % 128) / 32 * 16 + lane / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool row_in = row + 8 * half < row_limit<Outer>(g, t);
    const __nv_bfloat16* at = row_of<Outer, __nv_bfloat16>(g, t, row + 8 * half) + 8 * q;
    uint4 old[kQuads];
#pragma unroll
    for (int j = 0; j < kQuads; ++j)
      old[j] = row_in && 32 * j + 8 * q < Cols && t.n + 32 * j + 8 * q < g.n
                   ? *reinterpret_cast<const uint4*>(at + 32 * j)
                   : uint4{};
#pragma unroll
    for (int j = 0; j < kQuads; ++j) {
      uint32_t x[4] = {old[j].x, old[j].y, old[j].z, old[j].w};
      turn(x, lane);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        d[16 * j + 4 * i + 2 * half] += __uint_as_float(x[i] << 16);
        d[16 * j + 4 * i + 2 * half + 1] += __uint_as_float(x[i] & 0xffff0000u);
      }
    }
  }
}

// Row by row, where a segment ends inside the warpgroup's rows. Four column groups at a time are turned, so that a lane
// writes 16 bytes.
template <bool Outer, int Cols>
__device__ void store_rows(const GroupedWork& g, const Tile& t, int group, float (&d)[128]) {
  const int lane = int(threadIdx.x % 32), q = lane % 4;
  const int row = t.m + group * 64 + int(threadIdx.x % 128) / 32 * 16 + lane / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool row_in = row + 8 * half < row_limit<Outer>(g, t);
    __nv_bfloat16* at = row_of<Outer, __nv_bfloat16>(g, t, row + 8 * half) + 8 * q;
#pragma unroll
    for (int j = 0; j < (Cols + 31) / 32; ++j) {
      uint32_t x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = pack(d[16 * j + 4 * i + 2 * half], d[16 * j + 4 * i + 2 * half + 1]);
      turn(x, lane);
      if (row_in && 32 * j + 8 * q < Cols && t.n + 32 * j + 8 * q < g.n)
        *reinterpret_cast<uint4*>(at + 32 * j) = make_uint4(x[0], x[1], x[2], x[3]);
    }
  }
}

// The staging of a warpgroup: one thread hands it to the copy engine, and waits before it is written again.
__device__ inline bool sender() { return threadIdx.x % 128 == 0; }
__device__ inline void staging_free(const Target& to) {
  if (sender()) hopper::store_wait_read();
  hopper::named_sync(2 + to.group, 128);
}
// Columns [First, First + 2 Width) of the tile, as far as it has them.
template <bool Outer, int Cols, int First, int Width, bool Add>
__device__ void staging_send(const Target& to, const Tile& t) {
  hopper::fence_async();
  hopper::named_sync(2 + to.group, 128);
  if (!sender()) return;
  const int row = (Outer ? 0 : t.begin) + t.m + to.group * 64, plane = Outer ? t.expert : 0;
#pragma unroll
  for (int box = 0; box < 2; ++box) {
    const int first = First + box * Width;
    if (first >= Cols || t.n + first >= to.g.n) break;
    const CUtensorMap* map = first + Width <= Cols ? &to.map : &to.rest;
    const uint32_t from = to.staging + uint32_t(box) * (kStaging / 2);
    if constexpr (Add)
      hopper::store_add(map, from, t.n + first, row, plane);
    else
      hopper::store(map, from, t.n + first, row, plane);
  }
  hopper::store_commit();
}

// 128 columns at a time in bf16, swizzled as the map says.
template <bool Outer, int Cols, int First = 0>
__device__ void store_bf16(const Target& to, const Tile& t, float (&d)[128]) {
  const int lane = int(threadIdx.x % 32), matrix = lane / 8;
  // A lane's row address of the four 8x8 blocks that a warp writes at a time: rows 0-7, 8-15 of two column groups.
  const uint32_t row = threadIdx.x % 128 / 32 * 16 + uint32_t(lane % 8 + matrix % 2 * 8);
  constexpr int kPairs = (Cols - First < 128 ? Cols - First : 128) / 16;
  staging_free(to);
#pragma unroll
  for (int p = 0; p < kPairs; ++p) {
    const uint32_t group = uint32_t(2 * p + matrix / 2);
    const float* f = d + First / 2 + 8 * p;
    hopper::store_matrices(to.staging + group / 8 * (kStaging / 2) + row * 128 + (group % 8 ^ row % 8) * 16,
                           pack(f[0], f[1]), pack(f[2], f[3]), pack(f[4], f[5]), pack(f[6], f[7]));
  }
  staging_send<Outer, Cols, First, 64, false>(to, t);
  if constexpr (First + 128 < Cols) store_bf16<Outer, Cols, First + 128>(to, t, d);
}

// 64 columns at a time in f32, of an outer product. The copy engine adds to what is there: one fp32 addition a number.
template <int Cols, bool Add, int First = 0>
__device__ void store_f32(const Target& to, const Tile& t, float (&d)[128]) {
  const uint32_t lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4;
  constexpr int kGroups = (Cols - First < 64 ? Cols - First : 64) / 8;
  staging_free(to);
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    const uint32_t column = uint32_t(j % 4 * 8) + lane % 4 * 2;  // in a box of 32
    const float* f = d + First / 2 + 4 * j;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t r = row + 8 * uint32_t(half);
      hopper::store_shared(
          to.staging + uint32_t(j / 4) * (kStaging / 2) + r * 128 + (column / 4 ^ r % 8) * 16 + column % 4 * 4,
          f[2 * half], f[2 * half + 1]);
    }
  }
  staging_send<true, Cols, First, 32, Add>(to, t);
  if constexpr (First + 64 < Cols) store_f32<Cols, Add, First + 64>(to, t, d);
}

template <bool Outer, int Cols, class Out>
__device__ void store(const Target& to, const Tile& t, float (&d)[128]) {
  if constexpr (sizeof(Out) == 4) {
    if (to.g.add)
      store_f32<Cols, true>(to, t, d);
    else
      store_f32<Cols, false>(to, t, d);
  } else {
    if (to.g.add) add_old<Outer, Cols>(to.g, t, to.group, d);
    // The map cuts off what lies past the result; a segment's end inside the rows it does not know.
    if (Outer || t.m + to.group * 64 + 64 <= t.count)
      store_bf16<Outer, Cols>(to, t, d);
    else
      store_rows<Outer, Cols>(to.g, t, to.group, d);
  }
}

}  // namespace kb::cuda
