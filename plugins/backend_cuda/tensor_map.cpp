#include "tensor_map.h"

#include <cuda_runtime_api.h>

#include "kitbash/error.h"
#include "product_errors.h"

namespace kb::cuda {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// From the driver that is loaded, so that nothing links against libcuda.
Encode encode() {
  static const Encode f = [] {
    void* p = nullptr;
    cudaDriverEntryPointQueryResult found{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &p, 12000, cudaEnableDefault, &found),
          "the search for cuTensorMapEncodeTiled");
    if (found != cudaDriverEntryPointSuccess || !p)
      fail("the driver must have cuTensorMapEncodeTiled (CUDA 12.0) but has not; update the driver");
    return reinterpret_cast<Encode>(p);
  }();
  return f;
}

}  // namespace

CUtensorMap tensor_map(const void* at, int64_t width, int64_t rows, int64_t planes, bool f32, int box_width,
                       int box_rows) {
  CUtensorMap m{};
  // An empty tensor is described as one row: no box of it is ever asked for.
  const cuuint64_t size[3] = {cuuint64_t(width), cuuint64_t(rows > 0 ? rows : 1), cuuint64_t(planes > 0 ? planes : 1)};
  const cuuint64_t bytes = f32 ? 4 : 2, stride[2] = {size[0] * bytes, size[0] * size[1] * bytes};
  const cuuint32_t box[3] = {cuuint32_t(box_width ? box_width
                                        : f32     ? 32
                                                  : 64),
                             cuuint32_t(box_rows), 1},
                   each[3] = {1, 1, 1};
  const CUresult r =
      encode()(&m, f32 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(at),
               size, stride, box, each, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r != CUDA_SUCCESS)
    fail("a tensor map of ", planes, " x ", rows, " x ", width, f32 ? " f32" : " bf16", " at address ", at,
         " must be accepted but the driver gives error ", int(r),
         "; the address must be a multiple of 16 bytes, as must a row");
  return m;
}

}  // namespace kb::cuda
