// attention_device.cuh: small pieces shared by the attention kernels.
#pragma once
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "attention_cuda.h"

namespace kb::cuda {

// nvcc sees no headers of the SDK: an error leaves as an exception that the kernel's guard turns into its sentence.
static inline void check_cuda(cudaError_t e, const char* what) {
  if (e != cudaSuccess)
    throw std::runtime_error(std::string("[") + what + "] must run on the device but got " + cudaGetErrorString(e));
}
static inline void check_launch(const char* what) { check_cuda(cudaGetLastError(), what); }

// More than 48 KiB of shared memory has to be asked for, once a kernel and device.
template <class K>
static void allow_shared(K* kernel, size_t bytes, const char* what) {
  check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  int(bytes)),
             what);
}

// Blocks of a kernel that takes pieces of work until none is left: one a multiprocessor.
static inline unsigned blocks_of(int64_t pieces) {
  int device = 0, n = 0;
  check_cuda(cudaGetDevice(&device), "attention");
  check_cuda(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device), "attention");
  return unsigned(pieces < n ? pieces : n);
}

// Over the four lanes that share a row of an m16n8 accumulator.
__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

inline constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

}  // namespace kb::cuda
