// problem_cuda.h: a call of `kda` or `kda_backward` on CUDA as plain pointers into device memory, for launchers that nvcc
// compiles without the SDK's headers. q, k, v, do and their gradients are float or bf16; all else is float.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace kda::cuda {

struct Problem {
  const void *q, *k, *v;  // [tokens, heads, K], the same, [tokens, heads, V]
  const float *g, *beta;  // [tokens, heads, K], [tokens, heads]
  const int32_t* cu;      // [documents + 1]
  const float* s0;        // [documents or slots, heads, K, V] or null
  const int32_t* slot;    // [documents] or null
  int64_t tokens, heads, documents, K, V;
  float scale;
  bool bf16;  // else float
  // forward; null: not wanted
  void* o;
  float* state;
  // backward; null: absent, or not wanted
  const void* d_o;
  const float* d_state;
  void *dq, *dk, *dv;
  float *dg, *dbeta, *ds0;
};

// Every launcher enqueues on the stream, and returns what cudaGetLastError says.

// Zeros in rows past the last border of outputs [tokens, row bytes]; null ones are left out.
struct Output {
  void* data;
  int64_t row;  // bytes, even
};
struct Outputs {
  Output at[5];
};
cudaError_t clear_unused(const Problem& p, const Outputs& outputs, cudaStream_t stream);

// recurrent_cuda.cu: token by token, any decay, K <= 256.
cudaError_t recurrent(const Problem& p, cudaStream_t stream);

// recurrent_backward_cuda.cu: token by token in reverse, K <= 256.
int64_t recurrent_backward_workspace(const Problem& p);  // bytes, from shapes alone
cudaError_t recurrent_backward(const Problem& p, void* workspace, cudaStream_t stream);

}  // namespace kda::cuda
