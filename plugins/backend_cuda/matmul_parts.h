// matmul_parts.h: launchers of what surrounds a product of an f32 operand on the bf16 tensor cores (MatmulMixed).
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace kb::cuda {

struct Parts {
  int64_t rows, cols;  // of one part; three lie as [rows, 3, cols]
};
// to [rows, 3, cols] bf16: x [rows, cols] rounded, what that leaves, rounded, and what that leaves: 24 digits in all.
cudaError_t cut_in_three(const float* x, const Parts& p, void* to, cudaStream_t stream);
// y [rows, cols] = or += the three parts of x [rows, 3, cols], the smallest first.
cudaError_t add_three(const float* x, const Parts& p, float* y, bool add, cudaStream_t stream);

}  // namespace kb::cuda
