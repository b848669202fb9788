// tensor_map.h: descriptions of bf16 tensors for the copy engine of sm_90.
#pragma once
#include <cuda.h>

#include <cstdint>

namespace kb::cuda {

// [planes, rows, width], dense, in boxes of box_rows rows of 128 bytes (64 bf16 or 32 f32), or of box_width numbers, with the
// 128-byte swizzle. Reads outside give zeros, writes outside are cut off. The address must be a multiple of 16, as must the
// bytes of a row.
CUtensorMap tensor_map(const void* at, int64_t width, int64_t rows, int64_t planes, bool f32 = false, int box_width = 0,
                       int box_rows = 64);

}  // namespace kb::cuda
