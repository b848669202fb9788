// cast_cuda.h: between any two of u8, i32, i64, bf16, f32. To bf16 to nearest, ties to even; to integers by truncation,
// out of range values at the ends of the range, NaN 0.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace kb::cuda::element {
void cast(const void* x, uint32_t from, void* y, uint32_t to, int64_t n, cudaStream_t s);
}  // namespace kb::cuda::element
