// grouped_cuda.h: launchers of the grouped products. Pointers are device memory; offsets [experts + 1] is read on the device
// only, and its segments may be of any length in any order of sizes. Nothing synchronises.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace kb::cuda {

// y [rows, out] (+)= x [rows, in] by the weights of each row's expert: w [experts, out, in], or with tw false [experts, in, out].
// Rows that no segment holds become zero, or with `add` stay.
struct LinearShape {
  int64_t rows, in, out, experts;
  bool tw, add;
};
// y [experts, o, i] (+)= the sum over an expert's rows of a [rows, o] by b [rows, i].
struct OuterShape {
  int64_t rows, o, i, experts;
  bool add;
};

// grouped_simt.cu: any size, f32 or bf16, plain fp32 arithmetic. to_f32: bf16 operands of an f32 result.
cudaError_t grouped_linear_simt(const LinearShape& s, bool bf16, const void* x, const void* w, const int32_t* offsets,
                                void* y, cudaStream_t stream);
cudaError_t grouped_outer_simt(const OuterShape& s, bool bf16, bool to_f32, const void* a, const void* b,
                               const int32_t* offsets, void* y, cudaStream_t stream);

}  // namespace kb::cuda
