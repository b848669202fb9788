#include <algorithm>

#include "kitbash/error.h"
#include "packing.h"

namespace kb::cudnn {
namespace {

void check(const char* what) {
  const cudaError_t e = cudaGetLastError();
  if (e != cudaSuccess) fail(what, " must launch but got: ", cudaGetErrorString(e));
}

__device__ int64_t border(const Packing& p, int64_t i) {
  const int64_t x = p.cu[i];
  return x < 0 ? 0 : x > p.tokens ? p.tokens : x;
}

__global__ void __launch_bounds__(256) pack_all(Packing p) {
  for (int64_t i = blockIdx.x * 256 + threadIdx.x; i <= p.documents; i += int64_t(gridDim.x) * 256) {
    const int64_t begin = border(p, i);
    for (const Offsets& o : p.offsets) o.at[i] = begin * o.width;
    if (i < p.documents) {
      const int64_t end = border(p, i + 1);
      p.length[i] = int32_t(end > begin ? end - begin : 0);
    }
  }
}

__global__ void __launch_bounds__(256) clear_rows(Packing p, uint32_t* rows, int64_t words) {
  const int64_t begin = border(p, 0), end = border(p, p.documents), used = end > begin ? end - begin : 0;
  for (int64_t r = blockIdx.x; r < p.tokens - used; r += gridDim.x) {
    uint32_t* row = rows + (r < begin ? r : r + used) * words;
    for (int64_t i = threadIdx.x; i < words; i += 256) row[i] = 0;
  }
}

__global__ void __launch_bounds__(256)
    log_sum_of(Packing p, const float* most, const float* total, int64_t heads, float* lse) {
  const int64_t begin = border(p, 0) * heads, end = border(p, p.documents) * heads;
  for (int64_t i = int64_t(blockIdx.x) * 256 + threadIdx.x; i < p.tokens * heads; i += int64_t(gridDim.x) * 256)
    lse[i] = i >= begin && i < end ? most[i] + logf(total[i]) : 0;
}

// Larger floats have larger bits above zero and smaller ones below it; the order of the updates does not matter.
__device__ void raise(float* to, float x) {
  if (x != x) return;
  if (__float_as_int(x) >= 0)
    atomicMax(reinterpret_cast<int*>(to), __float_as_int(x));
  else
    atomicMin(reinterpret_cast<unsigned*>(to), __float_as_uint(x));
}

__global__ void __launch_bounds__(256) lowest(float* peak, int heads) {
  for (int i = blockIdx.x * 256 + threadIdx.x; i < heads; i += gridDim.x * 256) peak[i] = -INFINITY;
}
constexpr int kRows = 512;  // of a block
__global__ void __launch_bounds__(256) highest_of(Packing p, const float* most, int heads, float* peak) {
  extern __shared__ float best[];
  for (int i = threadIdx.x; i < heads; i += 256) best[i] = -INFINITY;
  __syncthreads();
  const int64_t begin = max(border(p, 0), int64_t(blockIdx.x) * kRows),
                end = min(border(p, p.documents), int64_t(blockIdx.x + 1) * kRows);
  for (int64_t i = begin * heads + threadIdx.x; i < end * heads; i += 256) raise(best + i % heads, most[i]);
  __syncthreads();
  for (int i = threadIdx.x; i < heads; i += 256) raise(peak + i, best[i]);
}

}  // namespace

void pack(const Packing& p, cudaStream_t stream) {
  const unsigned blocks = unsigned(std::min<int64_t>((p.documents + 256) / 256, 1024));
  pack_all<<<blocks, 256, 0, stream>>>(p);
  check("the packing of documents");
}
void clear_outside(const Packing& p, void* rows, int64_t bytes, cudaStream_t stream) {
  if (p.tokens == 0 || bytes == 0) return;
  clear_rows<<<unsigned(std::min<int64_t>(p.tokens, 528)), 256, 0, stream>>>(p, static_cast<uint32_t*>(rows),
                                                                             bytes / 4);
  check("the clearing of unused rows");
}
void log_sum(const Packing& p, const float* most, const float* total, int64_t heads, float* lse, cudaStream_t stream) {
  const int64_t blocks = (p.tokens * heads + 255) / 256;
  if (blocks == 0) return;
  log_sum_of<<<unsigned(std::min<int64_t>(blocks, 1056)), 256, 0, stream>>>(p, most, total, heads, lse);
  check("the sums of exponentials");
}
void highest(const Packing& p, const float* most, int64_t heads, float* peak, cudaStream_t stream) {
  lowest<<<unsigned((heads + 255) / 256), 256, 0, stream>>>(peak, int(heads));
  if (p.tokens > 0)
    highest_of<<<unsigned((p.tokens + kRows - 1) / kRows), 256, size_t(heads) * sizeof(float), stream>>>(
        p, most, int(heads), peak);
  check("the largest logit");
}

}  // namespace kb::cudnn
