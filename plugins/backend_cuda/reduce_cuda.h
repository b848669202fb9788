// reduce_cuda.h: launchers of sums, maxima and softmax. No two blocks add to one number: partial results go through
// `room`, in an order fixed by the shape alone.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace kb::cuda::element {

enum class Reduction { sum, max };  // max: NaN counts nowhere, -inf when empty

// One reduction of the middle axis of [outer, width, inner].
struct Middle {
  int64_t outer = 1, width = 1, inner = 1;
};
// How much of the width counts: *rows * each when rows is not NULL (device memory), all of it otherwise.
struct InUse {
  const int32_t* rows = nullptr;
  int64_t each = 1;
};

// Floats of room that reduce_middle needs.
int64_t reduce_room(const Middle& m);
// y [outer, inner] = or += the reduction of x over the middle. x, y: f32 or bf16.
void reduce_middle(Reduction r, const void* x, uint32_t x_type, const Middle& m, InUse in_use, void* y, uint32_t y_type,
                   bool add, float* room, cudaStream_t s);
// y [] = the sum of the squares of all elements of `count` tensors, f32 or bf16, at most kMostSquares of them.
inline constexpr int kMostSquares = 256;
struct Squares {
  const void* x[kMostSquares];
  int64_t n[kMostSquares];
  int count;
};
int64_t square_sums_room(const Squares& s);  // floats
void square_sums(const Squares& s, uint32_t dtype, float* y, float* room, cudaStream_t stream);
// i32, gathered in 64 bits.
void sum_integers(const int32_t* x, const Middle& m, InUse in_use, int32_t* y, bool add, cudaStream_t s);

// Rows of n, f32 or bf16.
void softmax(const void* x, void* y, uint32_t dtype, int64_t rows, int64_t n, cudaStream_t s);

}  // namespace kb::cuda::element
