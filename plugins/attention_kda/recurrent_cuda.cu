// recurrent_cuda.cu: `kda` token by token. A warp keeps eight columns of the state in registers, four lanes a column, and
// needs nobody else's: columns of S never meet. The warps of a block share the tokens' exp(g), k and q in shared memory.
//   S' = exp(g) S;  e = v - S'^T k;  S = S' + k (beta e)^T;  o = scale S^T q
#include "convert_cuda.cuh"
#include "problem_cuda.h"

namespace kda::cuda {
namespace {

constexpr int kTile = 8;   // tokens staged at a time
constexpr int kWarps = 8;  // at most; eight columns each
constexpr int kColumns = 8 * kWarps;

// Lane l of a warp holds column l / 4, and of its rows the groups of four with number l % 4 + 4 n, n < Groups.
template <class T, int Groups>
__global__ void __launch_bounds__(32 * kWarps, Groups <= 8 ? 3 : 1) recurrent_kernel(Problem p, int64_t slices) {
  constexpr int kK = 16 * Groups;  // K rounded up; rows past K are zero
  __shared__ __align__(16) float a_s[kTile][kK], k_s[kTile][kK], q_s[kTile][kK];
  __shared__ float v_s[kTile][kColumns], o_s[kTile][kColumns], beta_s[kTile];
  const int columns = int(blockDim.x) / 4;
  const int64_t slice = blockIdx.x % slices, pair = blockIdx.x / slices, h = pair % p.heads, d = pair / p.heads;
  const int64_t lo = p.cu[d], hi = p.cu[d + 1];
  if (p.slot && lo >= hi) return;  // its slot number may be anything
  const int K = int(p.K), V = int(p.V), part = threadIdx.x & 3, column = threadIdx.x >> 2;
  const int64_t v0 = slice * columns, matrix = ((p.slot ? p.slot[d] : d) * p.heads + h) * p.K * p.V;
  const bool mine = v0 + column < V;

  float S[Groups][4];
#pragma unroll
  for (int n = 0; n < Groups; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int i = 4 * (part + 4 * n) + e;
      S[n][e] = p.s0 && mine && i < K ? p.s0[matrix + int64_t(i) * V + v0 + column] : 0.f;
    }

  const T *q = static_cast<const T*>(p.q), *k = static_cast<const T*>(p.k), *v = static_cast<const T*>(p.v);
  T* o = static_cast<T*>(p.o);
  for (int64_t t0 = lo; t0 < hi; t0 += kTile) {
    const int n_tokens = int(min(int64_t(kTile), hi - t0));
    __syncthreads();
    for (int x = threadIdx.x; x < kTile * kK; x += blockDim.x) {
      const int r = x / kK, i = x % kK;
      const int64_t at = ((t0 + r) * p.heads + h) * K + i;
      const bool in = r < n_tokens && i < K;
      a_s[r][i] = in ? __expf(p.g[at]) : 0.f;
      k_s[r][i] = in ? to_float(k[at]) : 0.f;
      q_s[r][i] = in ? to_float(q[at]) * p.scale : 0.f;
    }
    for (int x = threadIdx.x; x < kTile * columns; x += blockDim.x) {
      const int r = x / columns, c = x % columns;
      v_s[r][c] = r < n_tokens && v0 + c < V ? to_float(v[((t0 + r) * p.heads + h) * V + v0 + c]) : 0.f;
    }
    if (threadIdx.x < kTile)
      beta_s[threadIdx.x] = int(threadIdx.x) < n_tokens ? p.beta[(t0 + threadIdx.x) * p.heads + h] : 0.f;
    __syncthreads();
    for (int r = 0; r < n_tokens; ++r) {
      float sum[4] = {};
#pragma unroll
      for (int n = 0; n < Groups; ++n) {
        const float4 a = *reinterpret_cast<const float4*>(&a_s[r][4 * (part + 4 * n)]);
        const float4 kk = *reinterpret_cast<const float4*>(&k_s[r][4 * (part + 4 * n)]);
        S[n][0] *= a.x, S[n][1] *= a.y, S[n][2] *= a.z, S[n][3] *= a.w;
        sum[0] += kk.x * S[n][0], sum[1] += kk.y * S[n][1], sum[2] += kk.z * S[n][2], sum[3] += kk.w * S[n][3];
      }
      float along = (sum[0] + sum[1]) + (sum[2] + sum[3]);
      along += __shfl_xor_sync(~0u, along, 1);
      along += __shfl_xor_sync(~0u, along, 2);
      const float u = beta_s[r] * (v_s[r][column] - along);
      float out[4] = {};
#pragma unroll
      for (int n = 0; n < Groups; ++n) {
        const float4 kk = *reinterpret_cast<const float4*>(&k_s[r][4 * (part + 4 * n)]);
        const float4 qq = *reinterpret_cast<const float4*>(&q_s[r][4 * (part + 4 * n)]);
        S[n][0] += kk.x * u, S[n][1] += kk.y * u, S[n][2] += kk.z * u, S[n][3] += kk.w * u;
        out[0] += qq.x * S[n][0], out[1] += qq.y * S[n][1], out[2] += qq.z * S[n][2], out[3] += qq.w * S[n][3];
      }
      float given = (out[0] + out[1]) + (out[2] + out[3]);
      given += __shfl_xor_sync(~0u, given, 1);
      given += __shfl_xor_sync(~0u, given, 2);
      if (part == 0) o_s[r][column] = given;
    }
    if (!o) continue;
    __syncthreads();
    for (int x = threadIdx.x; x < n_tokens * columns; x += blockDim.x) {
      const int r = x / columns, c = x % columns;
      if (v0 + c < V) o[((t0 + r) * p.heads + h) * V + v0 + c] = from_float<T>(o_s[r][c]);
    }
  }
  if (!p.state || !mine) return;
#pragma unroll
  for (int n = 0; n < Groups; ++n)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int i = 4 * (part + 4 * n) + e;
      if (i < K) p.state[matrix + int64_t(i) * V + v0 + column] = S[n][e];
    }
}

template <int Groups>
void launch(const Problem& p, cudaStream_t stream) {
  const int64_t warps = p.V >= kColumns ? kWarps : (p.V + 7) / 8, slices = (p.V + 8 * warps - 1) / (8 * warps);
  const int64_t blocks = p.documents * p.heads * slices;
  if (!blocks) return;
  if (p.bf16)
    recurrent_kernel<bf16, Groups><<<unsigned(blocks), unsigned(32 * warps), 0, stream>>>(p, slices);
  else
    recurrent_kernel<float, Groups><<<unsigned(blocks), unsigned(32 * warps), 0, stream>>>(p, slices);
}

__global__ void clear_kernel(const int32_t* cu, int64_t documents, Outputs outputs, int64_t tokens) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x, used = cu[documents];
  for (const Output& o : outputs.at)
    if (o.data)
      for (int64_t at = used * o.row / 2 + blockIdx.x * int64_t(blockDim.x) + threadIdx.x; at < tokens * o.row / 2;
           at += step)
        static_cast<uint16_t*>(o.data)[at] = 0;
}

}  // namespace

cudaError_t recurrent(const Problem& p, cudaStream_t stream) {
  if (p.K <= 16)
    launch<1>(p, stream);
  else if (p.K <= 32)
    launch<2>(p, stream);
  else if (p.K <= 64)
    launch<4>(p, stream);
  else if (p.K <= 128)
    launch<8>(p, stream);
  else
    launch<16>(p, stream);
  return cudaGetLastError();
}

cudaError_t clear_unused(const Problem& p, const Outputs& outputs, cudaStream_t stream) {
  if (p.tokens) clear_kernel<<<132, 256, 0, stream>>>(p.cu, p.documents, outputs, p.tokens);
  return cudaGetLastError();
}

}  // namespace kda::cuda
