// grouped_wgmma.h: launchers of grouped_{linear,outer}_wgmma.cu: bf16 grouped products on the tensor cores of sm_90a.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "grouped_cuda.h"

namespace kb::cuda {

// Columns of a tile for a result of n columns: of the widths there are kernels for, the one that computes least beside the
// result. A tile costs about 16 columns more than it has.
inline int grouped_cols(int64_t n) {
  int best = 256;
  for (int cols : {240, 224, 192, 128})
    if ((n + cols - 1) / cols * (cols + 16) < (n + best - 1) / best * (best + 16)) best = cols;
  return best;
}

// Maps (tensor_map.h) of the operands and the result. linear: x [1, rows, in], w [experts, out, in] or, turned,
// [experts, in, out], y [1, rows, out]. outer: a [1, rows, o], b [1, rows, i], y [experts, o, i]. rest: y again in boxes of
// the columns that a tile has beyond the last 128 bytes.
struct GroupedMaps {
  int cols = 256;
  CUtensorMap a, b, y, rest;
};

// prepare: once for its arguments, before the first launch
cudaError_t prepare_grouped_linear_wgmma(bool tw, int cols);
cudaError_t grouped_linear_wgmma(const LinearShape& s, const GroupedMaps& m, const int32_t* offsets, void* y,
                                 int multiprocessors, cudaStream_t stream);
cudaError_t prepare_grouped_outer_wgmma(bool to_f32, int cols);
cudaError_t grouped_outer_wgmma(const OuterShape& s, bool to_f32, const GroupedMaps& m, const int32_t* offsets, void* y,
                                int multiprocessors, cudaStream_t stream);

}  // namespace kb::cuda
