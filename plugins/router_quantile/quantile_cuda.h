// quantile_cuda.h: launchers of the CUDA kernels of quantile balancing. All pointers are device memory; nothing waits.
// Counts are integers, added atomically: their order does not matter. Floats are never added so.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace quantile_cuda {

// A batch of routed tokens. used: how many of them are in use; null: all.
struct Tokens {
  const float *scores, *cutoff;  // [tokens, experts], [tokens]
  const int32_t* document;       // [tokens]
  const int32_t* used;
  int64_t tokens;
};

// counts [experts, bins] += needed biases.
cudaError_t count(const Tokens& t, const float* bias, int64_t experts, int64_t bins, int32_t* counts, cudaStream_t s);

// now [experts] is workspace; out [experts].
cudaError_t estimate(const int32_t* counts, const float* bias, int64_t experts, int64_t bins, int64_t active,
                     double ema, double* now, float* out, cudaStream_t s);

// row [tokens] is workspace. `filled` counts on past `capacity`, whose rows alone are kept.
cudaError_t append(const Tokens& t, int64_t experts, int64_t capacity, int32_t* row, float* margins, int32_t* filled,
                   cudaStream_t s);

// NaN where margins are missing: filled > capacity, or filled != total.
cudaError_t exact(const float* margins, const int32_t* filled, const int32_t* total, const float* bias, int64_t experts,
                  int64_t capacity, int64_t active, double ema, double* now, float* out, cudaStream_t s);

// load [experts] += assignments; ids outside of [0, experts) count nowhere.
cudaError_t load(const int32_t* ids, const int32_t* document, const int32_t* used, int64_t tokens, int64_t active,
                 int64_t experts, int32_t* load, cudaStream_t s);

}  // namespace quantile_cuda
