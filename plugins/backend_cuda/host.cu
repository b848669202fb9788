// The small kernels of the runtime: tails, fills, and the condition under which a step writes.
#include "host_cuda.h"

namespace kb::cuda {
namespace {

constexpr int kThreads = 256;
constexpr uint64_t kMaxBlocks = 132 * 8;

// T: the widest word that start and row size allow.
template <class T>
__global__ void clear_tail_kernel(T* data, uint64_t rows, uint64_t row_words, const int32_t* used) {
  const int32_t u = *used;
  const uint64_t begin = (u < 0 ? 0 : uint64_t(u)) * row_words, end = rows * row_words;
  const uint64_t step = uint64_t(gridDim.x) * blockDim.x;
  for (uint64_t i = begin + uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < end; i += step) data[i] = T{};
}

template <class T>
cudaError_t launch_clear(void* data, uint64_t rows, uint64_t row_bytes, const int32_t* used, cudaStream_t s) {
  const uint64_t words = row_bytes / sizeof(T), all = rows * words;
  if (!all) return cudaSuccess;
  // A few blocks do: a tail is short, or the batch is small.
  const uint64_t blocks = (all + kThreads * 16 - 1) / (kThreads * 16);
  clear_tail_kernel<T><<<unsigned(blocks < kMaxBlocks ? blocks : kMaxBlocks), kThreads, 0, s>>>(static_cast<T*>(data),
                                                                                                rows, words, used);
  return cudaGetLastError();
}

template <class T>
__global__ void fill_kernel(T* to, uint64_t n, T v) {
  const uint64_t step = uint64_t(gridDim.x) * blockDim.x;
  for (uint64_t i = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) to[i] = v;
}

template <class T>
cudaError_t launch_fill(void* to, uint64_t n, T v, cudaStream_t s) {
  const uint64_t blocks = (n + kThreads * 4 - 1) / (kThreads * 4);
  fill_kernel<T><<<unsigned(blocks < kMaxBlocks ? blocks : kMaxBlocks), kThreads, 0, s>>>(static_cast<T*>(to), n, v);
  return cudaGetLastError();
}

__global__ void condition_kernel(cudaGraphConditionalHandle h, const float* flag) {
  cudaGraphSetConditional(h, *flag != 0.f);
}

}  // namespace

cudaError_t clear_tail(void* data, uint64_t rows, uint64_t row_bytes, const int32_t* used, cudaStream_t s) {
  const uint64_t a = reinterpret_cast<uint64_t>(data) | row_bytes;
  if (a % 16 == 0) return launch_clear<uint4>(data, rows, row_bytes, used, s);
  if (a % 4 == 0) return launch_clear<uint32_t>(data, rows, row_bytes, used, s);
  return launch_clear<uint8_t>(data, rows, row_bytes, used, s);
}

cudaError_t fill_pattern(void* to, uint64_t n, uint32_t width, uint64_t pattern, cudaStream_t s) {
  if (!n) return cudaSuccess;
  if (!pattern || width == 1) return cudaMemsetAsync(to, int(pattern & 0xff), n * width, s);
  if (width == 2) return launch_fill(to, n, uint16_t(pattern), s);
  if (width == 4) return launch_fill(to, n, uint32_t(pattern), s);
  return launch_fill(to, n, pattern, s);
}

cudaError_t set_condition(cudaGraphConditionalHandle h, const float* flag, cudaStream_t s) {
  condition_kernel<<<1, 1, 0, s>>>(h, flag);
  return cudaGetLastError();
}

}  // namespace kb::cuda
