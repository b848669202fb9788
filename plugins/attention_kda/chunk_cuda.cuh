// chunk_cuda.cuh: what the chunk kernels share: where a chunk is, and how prepare() lays out its results.
#pragma once
#include "chunk_cuda.h"
#include "convert_cuda.cuh"
#include "wgmma_cuda.cuh"

namespace kda::cuda {

// Byte offsets of one chunk's matrices, as tiles that wgmma reads (wgmma_cuda.cuh): [64, D] is D / 64 tiles of 64 columns.
// Diagonals are apart, in float: they carry most of the sums. The sweep of the backward needs only the first kSweep bytes.
template <int D>
struct Record {
  static constexpr int kTile = 64 * 64 * 2, kMatrix = D / 64 * kTile;
  static constexpr int kKin = 0;                   // K+
  static constexpr int kKrest = kMatrix;           // Kr
  static constexpr int kSolve = 2 * kMatrix;       // A diag(beta) [64, 64] without its diagonal, which is beta
  static constexpr int kLast = kSolve + kTile;     // c_last, float [D]
  static constexpr int kBeta = kLast + D * 4;      // float [64]
  static constexpr int kOwn = kBeta + kChunk * 4;  // diagonal of P, float [64]
  static constexpr int kSweep = kOwn;
  static constexpr int kQin = kLast + 1024;      // Q+
  static constexpr int kPairs = kQin + kMatrix;  // P [64, 64] without its diagonal
  static constexpr int kSize = kPairs + kTile;
};

struct Place {                 // of a chunk
  int64_t document, t, chunk;  // first token; chunk inside the document
  int n;                       // tokens; 0: no such chunk
};
// The chunk with this number (chunk_bound).
__device__ inline Place place_of(const Problem& p, int64_t number) {
  int64_t low = 0, high = p.documents - 1;  // the last document whose first number is not above
  while (low < high) {
    const int64_t mid = (low + high + 1) / 2;
    if (p.cu[mid] / kChunk + mid <= number)
      low = mid;
    else
      high = mid - 1;
  }
  const int64_t from = p.cu[low], end = p.cu[low + 1], chunk = number - (from / kChunk + low),
                t = from + chunk * kChunk;
  return {low, t, chunk, int(max(int64_t(0), min(int64_t(kChunk), end - t)))};
}

// Write strengths are kept from zero, so that what is proportional to one may be divided by it.
__device__ inline float strength(float beta) { return fabsf(beta) < 1e-18f ? 1e-18f : beta; }

constexpr float kLog2e = 1.44269504088896341f;

}  // namespace kda::cuda
