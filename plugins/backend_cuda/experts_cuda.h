// experts_cuda.h: launchers of expert_sort.cu and expert_rows.cu. Pointers are device memory; nothing synchronises.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace kb::cuda {

// The choices ids [n] are cut into chunks that one warp each counts and places: order inside an expert is that of the input.
struct SortShape {
  int32_t n, active, experts, tile;  // n: tokens * active, bound
  int32_t rows;                      // room in source
  int32_t chunks, chunk;             // choices of a chunk: a multiple of 32

  SortShape(int64_t n_, int64_t active_, int64_t experts_, int64_t tile_, int64_t rows_)
      : n(int32_t(n_)),
        active(int32_t(active_)),
        experts(int32_t(experts_)),
        tile(int32_t(tile_)),
        rows(int32_t(rows_)) {
    chunks = n <= 512 ? 1 : int32_t((n_ + 255) / 256);
    if (chunks > 1024) chunks = 1024;
    chunk = int32_t(((n_ + chunks - 1) / chunks + 31) / 32 * 32);
  }
  uint64_t workspace() const { return chunks == 1 ? 0 : uint64_t(experts) * uint64_t(chunks + 1) * 4; }
};
constexpr int64_t kMostExperts = 4096;  // two ints each in 48 KiB of shared memory

// source [rows] or null, offsets [experts + 1] or null; tokens: how many are in use, on the device; null: all.
// Ids outside [0, experts) are left out.
cudaError_t expert_sort(const SortShape& s, const int32_t* ids, const int32_t* tokens, int32_t* source,
                        int32_t* offsets, void* workspace, cudaStream_t stream);

// to [rows, width bytes] = from [.., width] at row source / active, or zeros where source is -1.
cudaError_t dispatch(int64_t rows, int64_t width, int64_t active, const void* from, const int32_t* source, void* to,
                     cudaStream_t stream);

// y [tokens, width] = the sum of a token's rows of x [rows, width], by rising choice; source names a choice once at most.
// inverse [tokens * active]: workspace.
cudaError_t combine(bool bf16, int64_t rows, int64_t tokens, int64_t active, int64_t width, const void* x,
                    const int32_t* source, int32_t* inverse, void* y, cudaStream_t stream);

}  // namespace kb::cuda
