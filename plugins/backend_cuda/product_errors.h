// product_errors.h: return codes of CUDA and cuBLASLt as sentences.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "kitbash/error.h"

namespace kb::cuda {

inline void check(cudaError_t e, const char* what) {
  if (e != cudaSuccess)
    fail(what, " must succeed but got ", cudaGetErrorName(e), " (", cudaGetErrorString(e),
         "); an earlier kernel of the stream may be the cause");
}
inline void check(cublasStatus_t e, const char* what) {
  if (e != CUBLAS_STATUS_SUCCESS) fail(what, " must succeed but cuBLASLt gives ", cublasLtGetStatusName(e));
}

}  // namespace kb::cuda
