// scatter_cuda.h: launcher of scatter_add: rows of x [m, width] are added to rows of y [n, width], each sum in the
// order of its addends, whatever the device does first.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace kb::cuda::element {

uint64_t scatter_room(int64_t m, int64_t n);  // bytes
// row -1 is dropped; any other row outside of y makes row 0 NaN. in_use: *in_use rows of x count when it is not NULL.
cudaError_t scatter_add(const void* x, uint32_t dtype, const int32_t* rows, int64_t m, const int32_t* in_use,
                        int64_t width, int64_t n, void* y, bool add, void* room, cudaStream_t s);

}  // namespace kb::cuda::element
