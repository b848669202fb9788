// topk_cuda.h: the k largest of each row of n, descending; ties: the lower id first; NaN is smaller than every number.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace kb::cuda::element {
// values, ids: NULL where not wanted.
void topk(const void* x, uint32_t dtype, int64_t rows, int64_t n, int64_t k, void* values, int32_t* ids,
          cudaStream_t s);
}  // namespace kb::cuda::element
