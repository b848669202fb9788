// host_cuda.h: the small kernels of the runtime itself.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace kb::cuda {

// Zeroes rows [*used, rows) of `data`. Nothing when used is null and rows is 0: a launch that only loads the kernel.
cudaError_t clear_tail(void* data, uint64_t rows, uint64_t row_bytes, const int32_t* used, cudaStream_t s);
// n elements of `width` bytes (1, 2, 4 or 8) become `pattern`, its lowest bytes.
cudaError_t fill_pattern(void* to, uint64_t n, uint32_t width, uint64_t pattern, cudaStream_t s);
// The condition of a graph's IF node becomes *flag != 0.
cudaError_t set_condition(cudaGraphConditionalHandle h, const float* flag, cudaStream_t s);

}  // namespace kb::cuda
