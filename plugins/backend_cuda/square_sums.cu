// square_sums.cu: the sum of the squares of many tensors in two launches, for the norm of all gradients: a block takes a piece
// of one tensor, then one block adds the pieces in their order.
#include "element.cuh"
#include "reduce_cuda.h"

namespace kb::cuda::element {
namespace {

constexpr int64_t kPiece = 1 << 16;  // elements of a block

struct Pieces {
  Squares s;
  int32_t first[kMostSquares + 1];  // of each tensor
};
Pieces pieces_of(const Squares& s) {
  Pieces p{s, {}};
  for (int i = 0; i < s.count; ++i) p.first[i + 1] = p.first[i] + int32_t((s.n[i] + kPiece - 1) / kPiece);
  return p;
}

template <class T>
__global__ void __launch_bounds__(256) sum_pieces(const __grid_constant__ Pieces p, float* part) {
  constexpr int kLanes = 16 / sizeof(T);
  __shared__ float room[32];
  const int piece = int(blockIdx.x);
  int low = 0, high = p.s.count - 1;  // the last tensor whose first piece is not above
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (p.first[middle] <= piece)
      low = middle;
    else
      high = middle - 1;
  }
  const int64_t begin = (piece - p.first[low]) * kPiece;
  const int n = int(min(kPiece, p.s.n[low] - begin));
  const T* x = static_cast<const T*>(p.s.x[low]) + begin;
  const int whole = reinterpret_cast<uintptr_t>(x) % 16 ? 0 : n / kLanes * kLanes;
  float sum = 0;
  for (int i = threadIdx.x * kLanes; i < whole; i += 256 * kLanes) {
    float f[kLanes];
    load<kLanes>(x + i, f);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) sum = fmaf(f[k], f[k], sum);
  }
  for (int i = whole + int(threadIdx.x); i < n; i += 256) sum = fmaf(widen(x[i]), widen(x[i]), sum);
  sum = block_sum(sum, room);
  if (threadIdx.x == 0) part[piece] = sum;
}

__global__ void __launch_bounds__(1024) sum_parts(const float* part, int n, float* y) {
  __shared__ double room[1024];
  double sum = 0;
  for (int i = threadIdx.x; i < n; i += 1024) sum += double(part[i]);
  room[threadIdx.x] = sum;
  for (int half = 512; half; half /= 2) {
    __syncthreads();
    if (int(threadIdx.x) < half) room[threadIdx.x] += room[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *y = float(room[0]);
}

}  // namespace

int64_t square_sums_room(const Squares& s) { return pieces_of(s).first[s.count]; }
void square_sums(const Squares& s, uint32_t dtype, float* y, float* room, cudaStream_t stream) {
  const Pieces p = pieces_of(s);
  const int pieces = p.first[s.count];
  if (pieces && dtype == KB_F32)
    sum_pieces<float><<<unsigned(pieces), 256, 0, stream>>>(p, room);
  else if (pieces)
    sum_pieces<Bf16><<<unsigned(pieces), 256, 0, stream>>>(p, room);
  sum_parts<<<1, 1024, 0, stream>>>(room, pieces, y);
}

}  // namespace kb::cuda::element
