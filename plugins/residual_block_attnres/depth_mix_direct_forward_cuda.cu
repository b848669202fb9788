// Forward of depth_mix for narrow bf16 rows: a token's rows are loaded into the registers of one, two or four warps, all loads
// before the first use; many tokens at work on a multiprocessor hide the wait.
#include "depth_mix_cuda.cuh"

namespace depth_mix_cuda {
namespace {

template <int kMax, int kPieces>
__global__ void __launch_bounds__(128) mix_direct(const __grid_constant__ Forward a, int warps) {
  extern __shared__ __align__(16) float c[];  // norm * query [d], then the sums [2, 4, kSums]
  using T = __nv_bfloat16;
  const Worker w(warps);
  const int pieces = int(a.d / 8), n = a.n;
  const int64_t end = tokens_in_use(a);
  float* sums = c + a.d + w.group * warps * kSums;
  int turn = 0;
  multiply_weights(a, c);
  for (int64_t t = int64_t(blockIdx.x) * w.groups + w.group; t < end; t += int64_t(gridDim.x) * w.groups) {
    uint4 v[kMax][kPieces];
#pragma unroll
    for (int i = 0; i < kMax; ++i) {
      const uint4* row = reinterpret_cast<const uint4*>(static_cast<const T*>(a.v[i < n ? i : 0]) + t * a.d);
#pragma unroll
      for (int k = 0; k < kPieces; ++k) {
        const int q = w.index + k * w.workers;
        v[i][k] = i < n && q < pieces ? __ldg(row + q) : uint4{};
      }
    }
    if (const int64_t next = t + int64_t(gridDim.x) * w.groups; kMax <= 4 && next < end && w.index < n)
      prefetch_row(static_cast<const T*>(a.v[w.index]) + next * a.d, uint32_t(a.d * 2));
    float s[kMax <= 4 ? 8 : kMax <= 8 ? 16 : 32] = {};  // c . v and v . v of each source
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      const int q = w.index + k * w.workers;
      float weight[8] = {};
      if (q < pieces) load_weights(c, a.d, q, weight);
#pragma unroll
      for (int i = 0; i < kMax; ++i) {
        float f[8];
        unpack<T>(v[i][k], f);
#pragma unroll
        for (int e = 0; e < 8; ++e)
          s[2 * i] = fmaf(f[e], weight[e], s[2 * i]), s[2 * i + 1] = fmaf(f[e], f[e], s[2 * i + 1]);
      }
    }
    constexpr int kShare = 32 / int(sizeof(s) / 4);  // lanes that hold the same sum
    const float total = warp_sums(s, w.lane);
    float* mine = sums + turn * 4 * kSums;
    if (w.lane % kShare == 0) mine[w.own * kSums + w.lane / kShare] = total;
    w.sync();
    float cv = 0, vv = 0;  // of source `lane`
    if (w.lane < n)
      for (int k = 0; k < warps; ++k) {
        const float2 both = *reinterpret_cast<const float2*>(mine + k * kSums + 2 * w.lane);
        cv += both.x, vv += both.y;
      }
    turn ^= 1;
    const float p = softmax16(cv * rsqrtf(vv / float(a.d) + a.eps), w.lane, n);
    if (a.p && w.own == 0 && w.lane < n) a.p[t * n + w.lane] = p;
    if (!a.h) continue;
    float weights[kMax];
#pragma unroll
    for (int i = 0; i < kMax; ++i) weights[i] = i < n ? __shfl_sync(~0u, p, i) : 0.f;
    uint4* out = reinterpret_cast<uint4*>(static_cast<T*>(a.h) + t * a.d);
#pragma unroll
    for (int k = 0; k < kPieces; ++k) {
      const int q = w.index + k * w.workers;
      float h[8] = {};
#pragma unroll
      for (int i = 0; i < kMax; ++i) {
        float f[8];
        unpack<T>(v[i][k], f);
#pragma unroll
        for (int e = 0; e < 8; ++e) h[e] = fmaf(weights[i], f[e], h[e]);
      }
      if (q < pieces) out[q] = pack<T>(h);
    }
  }
}

template <int kMax, int kPieces>
cudaError_t launch(const Forward& a, Layout& l, cudaStream_t stream) {
  const cudaError_t e = fit_blocks(mix_direct<kMax, kPieces>, l);
  if (e != cudaSuccess) return e;
  const int64_t groups = 4 / l.warps, needed = (a.tokens + groups - 1) / groups;
  if (needed < l.blocks) l.blocks = int(needed);
  mix_direct<kMax, kPieces><<<l.blocks, l.threads, size_t(l.shared), stream>>>(a, l.warps);
  return cudaGetLastError();
}

}  // namespace

cudaError_t forward_direct(const Forward& a, Layout& l, cudaStream_t stream) {
  if (l.pieces == 1) return a.n <= 4 ? launch<4, 1>(a, l, stream) : launch<kMost, 1>(a, l, stream);
  if (l.pieces == 2)
    return a.n <= 4   ? launch<4, 2>(a, l, stream)
           : a.n <= 9 ? launch<9, 2>(a, l, stream)
                      : launch<kMost, 2>(a, l, stream);
  return a.n <= 2 ? launch<2, 4>(a, l, stream) : a.n <= 4 ? launch<4, 4>(a, l, stream) : launch<6, 4>(a, l, stream);
}

}  // namespace depth_mix_cuda
