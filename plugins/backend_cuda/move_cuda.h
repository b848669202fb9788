// move_cuda.h: launchers of what only moves elements, whatever their type. A `unit` is 1, 2, 4, 8 or 16 bytes that move
// together; sizes and steps count units.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "walk.h"

namespace kb::cuda::element {

// y[i] = x[the walk's offset of i].
void move_walk(int unit, const void* x, void* y, const Walk<1>& walk, cudaStream_t s);
// y [batch.., a, b] from x with b's step being large and a's step 1: tiles go through shared memory. `batch` walks
// the other axes: operand 0 is x, operand 1 is y. Units of at most 8 bytes.
struct Transposition {
  int64_t a, b;            // sizes: x's innermost axis, y's innermost axis
  int64_t x_step, y_step;  // of b in x, of a in y
};
void move_transposed(int unit, const void* x, void* y, const Transposition& t, const Walk<2>& batch, cudaStream_t s);

// `outer` blocks of `inner` units, `to_step` and `from_step` apart.
void move_blocks(int unit, int64_t outer, int64_t inner, void* to, int64_t to_step, const void* from, int64_t from_step,
                 cudaStream_t s);
// `outer` rows of `width` units: zeros, but the `own` units from `begin` on come from x (dense).
void move_into_zeros(int unit, int64_t outer, int64_t width, int64_t begin, int64_t own, const void* x, void* y,
                     cudaStream_t s);

// y [m, width] = rows of x [n, width]; row -1 gives zeros, any other row outside of x all bits 1: NaN. in_use:
// *in_use rows are looked at when it is not NULL (device memory).
void gather(int unit, const void* x, int64_t n, const int32_t* rows, int64_t m, const int32_t* in_use, int64_t width,
            void* y, cudaStream_t s);
// y [n, k] = x [n, width] at ids [n, k]; an id outside of the row gives all bits 1.
void take(int unit, const void* x, int64_t width, const int32_t* ids, int64_t n, int64_t k, void* y, cudaStream_t s);
// y [n, width], cleared by the caller, at ids [n, k] = x [n, k]; ids outside of the row are dropped.
void untake(int unit, const void* x, const int32_t* ids, int64_t n, int64_t k, int64_t width, void* y, cudaStream_t s);

}  // namespace kb::cuda::element
