// Backward of depth_mix for narrow bf16 rows: a token's dh and sources are loaded into the registers of one, two or four
// warps, all loads before the first use. What a gradient is added to is fetched one source ahead.
#include "depth_mix_cuda.cuh"

namespace depth_mix_cuda {
namespace {

template <int kMax, int kPieces>
__global__ void __launch_bounds__(128, kMax <= 2   ? 5
                                       : kMax <= 4 ? 4
                                       : kMax <= 9 ? 3
                                                   : 2) unmix_direct(const __grid_constant__ Backward a, int warps) {
  extern __shared__ __align__(16) float c[];  // norm * query [d], then the sums [2, 4, kSums]
  using T = __nv_bfloat16;
  const Worker w(warps);
  const int pieces = int(a.d / 8), n = a.n;
  const int64_t end = tokens_in_use(a);
  float* sums = c + a.d + w.group * warps * kSums;
  int turn = 0;
  multiply_weights(a, c);
  float dc[kPieces][8] = {};  // the gradient of c, of this thread's channels
  for (int64_t t = int64_t(blockIdx.x) * w.groups + w.group; t < end; t += int64_t(gridDim.x) * w.groups) {
    const auto fetch = [&](const void* from, bool wanted, uint4(&x)[kPieces]) {
      const uint4* row = reinterpret_cast<const uint4*>(static_cast<const T*>(from) + t * a.d);
#pragma unroll
      for (int k = 0; k < kPieces; ++k) {
        const int q = w.index + k * w.workers;
        x[k] = wanted && q < pieces ? row[q] : uint4{};
      }
    };
    uint4 u[kPieces], v[kMax][kPieces], ahead[kPieces];
    fetch(a.dh, true, u);
#pragma unroll
    for (int i = 0; i < kMax; ++i) fetch(a.v[i < n ? i : 0], i < n, v[i]);
    fetch(a.dv[0], a.add & 1, ahead);
    constexpr int kFew = kMax <= 8 ? 8 : 16;
    float s[2 * kFew] = {}, s2[kFew] = {};  // c . v, then v . v of each source; dh . v
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      const int q = w.index + k * w.workers;
      float weight[8] = {}, g[8];
      if (q < pieces) load_weights(c, a.d, q, weight);
      unpack<T>(u[k], g);
#pragma unroll
      for (int i = 0; i < kMax; ++i) {
        float f[8];
        unpack<T>(v[i][k], f);
#pragma unroll
        for (int e = 0; e < 8; ++e)
          s[i] = fmaf(f[e], weight[e], s[i]), s[kFew + i] = fmaf(f[e], f[e], s[kFew + i]),
          s2[i] = fmaf(f[e], g[e], s2[i]);
      }
    }
    // Lane l holds sum l / (16 / kFew) of the first, sum l / (32 / kFew) of the second.
    const float first = warp_sums(s, w.lane), second = warp_sums(s2, w.lane);
    float* mine = sums + turn * 4 * kSums + w.own * kSums;
    if (w.lane % (16 / kFew) == 0) mine[w.lane / (16 / kFew)] = first;
    if (w.lane % (32 / kFew) == 0) mine[2 * kFew + w.lane / (32 / kFew)] = second;
    w.sync();
    float cv = 0, vv = 0, uv = 0;  // of source `lane`
    if (w.lane < n)
      for (int k = 0; k < warps; ++k) {
        const float* x = sums + turn * 4 * kSums + k * kSums + w.lane;
        cv += x[0], vv += x[kFew], uv += x[2 * kFew];
      }
    turn ^= 1;
    const Factors own = factors(cv, vv, uv, a.d, a.eps, w.lane, n);
#pragma unroll
    for (int i = 0; i < kMax; ++i) {
      if (i >= n) break;
      const float p = __shfl_sync(~0u, own.p, i), beta = __shfl_sync(~0u, own.beta, i);
      const float gamma = __shfl_sync(~0u, own.gamma, i);
      uint4 held[kPieces];
#pragma unroll
      for (int k = 0; k < kPieces; ++k) held[k] = ahead[k];
      if (i + 1 < kMax) fetch(a.dv[i + 1 < n ? i + 1 : 0], i + 1 < n && (a.add >> (i + 1) & 1), ahead);
      uint4* out = reinterpret_cast<uint4*>(static_cast<T*>(a.dv[i]) + t * a.d);
#pragma unroll
      for (int k = 0; k < kPieces; ++k) {
        const int q = w.index + k * w.workers;
        float f[8];
        unpack<T>(v[i][k], f);
        if (a.dv[i] && q < pieces) {
          float g[8], r[8], weight[8];
          load_weights(c, a.d, q, weight);
          unpack<T>(u[k], g);
          unpack<T>(held[k], r);  // zeros where nothing is added
#pragma unroll
          for (int e = 0; e < 8; ++e) r[e] += fmaf(gamma, f[e], fmaf(beta, weight[e], p * g[e]));
          out[q] = pack<T>(r);
        }
#pragma unroll
        for (int e = 0; e < 8; ++e) dc[k][e] = fmaf(beta, f[e], dc[k][e]);
      }
    }
  }
  if (!a.partial) return;
  __syncthreads();  // c is free now: the groups of the block add up there, in their order
  for (int g = 0; g < w.groups; ++g) {
    if (w.group == g)
#pragma unroll
      for (int k = 0; k < kPieces; ++k) {
        const int q = w.index + k * w.workers;
        if (q >= pieces) continue;
#pragma unroll
        for (int e = 0; e < 8; ++e) c[8 * q + e] = dc[k][e] + (g ? c[8 * q + e] : 0.f);
      }
    __syncthreads();
  }
  for (int x = threadIdx.x; x < a.d; x += blockDim.x) a.partial[blockIdx.x * a.d + x] = c[x];
}

template <int kMax, int kPieces>
cudaError_t launch(const Backward& a, Layout& l, cudaStream_t stream) {
  const cudaError_t e = fit_blocks(unmix_direct<kMax, kPieces>, l);
  if (e != cudaSuccess) return e;
  const int64_t groups = 4 / l.warps, needed = (a.tokens + groups - 1) / groups;
  if (needed < l.blocks) l.blocks = int(needed);
  unmix_direct<kMax, kPieces><<<l.blocks, l.threads, size_t(l.shared), stream>>>(a, l.warps);
  return cudaGetLastError();
}

}  // namespace

cudaError_t backward_direct(const Backward& a, Layout& l, cudaStream_t stream) {
  if (l.pieces == 1) return a.n <= 4 ? launch<4, 1>(a, l, stream) : launch<kMost, 1>(a, l, stream);
  return a.n <= 2   ? launch<2, 2>(a, l, stream)
         : a.n <= 4 ? launch<4, 2>(a, l, stream)
         : a.n <= 6 ? launch<6, 2>(a, l, stream)
         : a.n <= 9 ? launch<9, 2>(a, l, stream)
                    : launch<kMost, 2>(a, l, stream);
}

}  // namespace depth_mix_cuda
