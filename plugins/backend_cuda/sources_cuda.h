// sources_cuda.h: launchers of tensors that are made from attributes alone. Random ones depend on seed and element
// only, and are the numbers of every other backend (plugins/backend_cpu/philox.h): made in double, rounded once.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace kb::cuda::element {

// One element, as the bits of its type.
struct Bits {
  uint64_t bits;
  int width;  // bytes
};
void fill(Bits value, void* y, int64_t n, cudaStream_t s);
// n values of `width` bytes each from host memory, which is read before the call returns.
void write_values(const uint64_t* bits, int width, void* y, int64_t n, cudaStream_t s);
void iota(int32_t* y, int64_t n, cudaStream_t s);
void normal(uint64_t seed, double std, void* y, uint32_t dtype, int64_t n, cudaStream_t s);
void uniform(uint64_t seed, double lo, double hi, void* y, uint32_t dtype, int64_t n, cudaStream_t s);

}  // namespace kb::cuda::element
