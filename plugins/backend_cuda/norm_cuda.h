// norm_cuda.h: launchers of RMSNorm over rows of n, and of its gradient.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace kb::cuda::element {

// x, y, dy, dx: f32 or bf16 (`dtype`); w, dw: f32 or bf16 (`w_type`).
struct NormSizes {
  int64_t rows, n;
  uint32_t dtype, w_type;
  float eps;
};
bool norm_fits(uint32_t dtype,
               int64_t n);  // rows that long have a kernel; beyond 4096 elements operands must be aligned
cudaError_t rms_norm(const NormSizes& z, const void* x, const void* w, void* y, cudaStream_t s);

// dx, dw may be NULL: not wanted. part [norm_parts, n]: partial sums of dw, each of a fixed set of rows.
int64_t norm_parts(const NormSizes& z);
cudaError_t rms_norm_backward(const NormSizes& z, const void* x, const void* w, const void* dy, void* dx, float* part,
                              cudaStream_t s);

}  // namespace kb::cuda::element
