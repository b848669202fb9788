// scatter.cu: a stable sort by destination turns the rows into one list a destination, in the order of x; then each
// destination adds up its list in float, and rounds once.
#include <cub/device/device_radix_sort.cuh>

#include "element.cuh"
#include "kitbash/error.h"
#include "scatter_cuda.h"

namespace kb::cuda::element {
namespace {

constexpr int kThreads = 256;

int64_t padded(int64_t bytes) { return (bytes + 255) / 256 * 256; }
int bits_of(int64_t n) {  // of keys 0 .. n + 1
  int b = 1;
  while (int64_t(1) << b < n + 2) ++b;
  return b;
}
struct Room {
  uint32_t *keys, *sorted;
  int32_t *source, *order, *starts;  // starts [n + 2]: where the list of a destination begins
  void* sort;
  size_t sort_bytes;
};
size_t sort_bytes(int64_t m, int64_t n) {
  size_t bytes = 0;
  const cudaError_t e = cub::DeviceRadixSort::SortPairs(
      nullptr, bytes, static_cast<const uint32_t*>(nullptr), static_cast<uint32_t*>(nullptr),
      static_cast<const int32_t*>(nullptr), static_cast<int32_t*>(nullptr), int(m), 0, bits_of(n));
  if (e != cudaSuccess) fail("scatter_add: the room of its sort must be known but got ", cudaGetErrorString(e));
  return bytes;
}
Room divide(void* at, int64_t m, int64_t n) {
  const int64_t each = padded(m * 4);
  char* p = static_cast<char*>(at);
  Room r;
  r.keys = reinterpret_cast<uint32_t*>(p), r.sorted = reinterpret_cast<uint32_t*>(p + each);
  r.source = reinterpret_cast<int32_t*>(p + 2 * each), r.order = reinterpret_cast<int32_t*>(p + 3 * each);
  r.starts = reinterpret_cast<int32_t*>(p + 4 * each);
  r.sort = p + 4 * each + padded((n + 2) * 4);
  r.sort_bytes = sort_bytes(m, n);
  return r;
}

// Keys: the destination; n: a wrong row; n + 1: dropped.
__global__ void __launch_bounds__(kThreads)
    label(const int32_t* rows, int m, const int32_t* in_use, int64_t n, uint32_t* keys, int32_t* source) {
  const int i = int(blockIdx.x) * kThreads + int(threadIdx.x);
  if (i >= m) return;
  const int32_t r = rows[i];
  const bool dropped = r == -1 || (in_use && i >= *in_use);
  keys[i] = uint32_t(dropped ? n + 1 : r < 0 || r >= n ? n : r);
  source[i] = i;
}

// The first place of every key from 0 to n + 1 in the sorted keys.
__global__ void __launch_bounds__(kThreads) find_starts(const uint32_t* keys, int m, int64_t n, int32_t* starts) {
  const int64_t key = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (key >= n + 2) return;
  int from = 0, to = m;
  while (from < to) {
    const int mid = (from + to) / 2;
    if (int64_t(keys[mid]) < key)
      from = mid + 1;
    else
      to = mid;
  }
  starts[key] = from;
}

// A block a destination and a piece of its columns.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    gather_sums(const T* x, const int32_t* starts, const int32_t* order, int64_t width, int64_t n, T* y, bool add) {
  const int64_t r = blockIdx.x, column = (int64_t(blockIdx.y) * blockDim.x + threadIdx.x) * V;
  const int begin = starts[r], end = starts[r + 1];
  const bool wrong = r == 0 && starts[n] != starts[n + 1];
  if (column >= width || (add && begin == end && !wrong)) return;
  float sum[V];
#pragma unroll
  for (int k = 0; k < V; ++k) sum[k] = 0;
  if (add) load(y + r * width + column, sum);
#pragma unroll 8
  for (int i = begin; i < end; ++i) {
    float f[V];
    load(x + int64_t(order[i]) * width + column, f);
#pragma unroll
    for (int k = 0; k < V; ++k) sum[k] += f[k];
  }
  if (wrong)
#pragma unroll
    for (int k = 0; k < V; ++k) sum[k] = NAN;
  store(y + r * width + column, sum);
}

template <class T>
void sums(const T* x, const Room& room, int64_t width, int64_t n, T* y, bool add, cudaStream_t s) {
  constexpr int V = 16 / sizeof(T);
  const bool vector = width % V == 0 && (uintptr_t(x) | uintptr_t(y)) % 16 == 0;
  const int64_t units = vector ? width / V : width;
  int threads = 32;
  while (threads < kThreads && threads < units) threads *= 2;
  const dim3 grid(unsigned(n), unsigned((units + threads - 1) / threads));
  if (vector)
    gather_sums<T, V><<<grid, threads, 0, s>>>(x, room.starts, room.order, width, n, y, add);
  else
    gather_sums<T, 1><<<grid, threads, 0, s>>>(x, room.starts, room.order, width, n, y, add);
}

}  // namespace

uint64_t scatter_room(int64_t m, int64_t n) {
  return uint64_t(4 * padded(m * 4) + padded((n + 2) * 4)) + sort_bytes(m, n);
}

cudaError_t scatter_add(const void* x, uint32_t dtype, const int32_t* rows, int64_t m, const int32_t* in_use,
                        int64_t width, int64_t n, void* y, bool add, void* room, cudaStream_t s) {
  if (n * width == 0) return cudaSuccess;
  Room r = divide(room, m, n);
  if (m > 0) {
    label<<<unsigned((m + kThreads - 1) / kThreads), kThreads, 0, s>>>(rows, int(m), in_use, n, r.keys, r.source);
    const cudaError_t e = cub::DeviceRadixSort::SortPairs(r.sort, r.sort_bytes, r.keys, r.sorted, r.source, r.order,
                                                          int(m), 0, bits_of(n), s);
    if (e != cudaSuccess) return e;
  }
  find_starts<<<unsigned((n + 2 + kThreads - 1) / kThreads), kThreads, 0, s>>>(r.sorted, int(m), n, r.starts);
  if (dtype == KB_BF16)
    sums(static_cast<const Bf16*>(x), r, width, n, static_cast<Bf16*>(y), add, s);
  else
    sums(static_cast<const float*>(x), r, width, n, static_cast<float*>(y), add, s);
  return cudaGetLastError();
}

}  // namespace kb::cuda::element
