// Forward of depth_mix: every source is read from device memory once. The rows of a token pass through shared memory into
// registers, where they stay while its logits are found and while they are mixed; meanwhile the next rows arrive.
#include "depth_mix_cuda.cuh"

namespace depth_mix_cuda {
namespace {

// At most kMax sources. Registers hold 4 * kMax * kPieces words of them.
template <class T, int kMax, int kPieces>
__global__ void __launch_bounds__(32 * (kRingWarps + 1), 1) mix_rows(const __grid_constant__ Forward a, int slots) {
  extern __shared__ __align__(128) unsigned char shared[];
  constexpr int kE = kPiece<T>;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x >> 5) - 1, workers = warps * 32;
  const int pieces = int(a.d / kE), n = a.n;
  const int64_t end = tokens_in_use(a);
  Ring ring(shared, warps, slots, uint32_t(a.d * sizeof(T)));
  if (warp == warps) {
    if (lane) return;
    for (int64_t t = blockIdx.x; t < end; t += gridDim.x)
      for (int i = 0; i < n; ++i) ring.fill(static_cast<const T*>(a.v[i]) + t * a.d);
    return;
  }
  float c[kPieces][kE];  // norm * query of this thread's channels
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    const int q = threadIdx.x + k * workers;
#pragma unroll
    for (int e = 0; e < kE; ++e)
      c[k][e] = q < pieces ? a.norm[int64_t(q) * kE + e] * a.query[int64_t(q) * kE + e] : 0.f;
  }
  float* sums = ring.sums;  // [warps, kSums]
  for (int64_t t = blockIdx.x; t < end; t += gridDim.x) {
    uint4 v[kMax][kPieces] = {};
#pragma unroll
    for (int i0 = 0; i0 < kMax; i0 += 4) {
      if (i0 >= n) break;
      float s[8] = {};  // c . v and v . v of four sources
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (i0 + j >= kMax || i0 + j >= n) continue;
        const uint4* row = ring.wait();
#pragma unroll
        for (int k = 0; k < kPieces; ++k)
          if (const int q = threadIdx.x + k * workers; q < pieces) v[i0 + j][k] = row[q];
        ring.release(ring.slot, lane);
        ring.next();
#pragma unroll
        for (int k = 0; k < kPieces; ++k) {
          float f[kE];
          unpack<T>(v[i0 + j][k], f);
#pragma unroll
          for (int e = 0; e < kE; ++e)
            s[2 * j] = fmaf(f[e], c[k][e], s[2 * j]), s[2 * j + 1] = fmaf(f[e], f[e], s[2 * j + 1]);
        }
      }
      const float total = warp_sums(s, lane);
      if ((lane & 3) == 0) sums[warp * kSums + 2 * i0 + (lane >> 2)] = total;
    }
    workers_sync(workers);
    float cv = 0, vv = 0;  // of source `lane`
    if (lane < n)
      for (int w = 0; w < warps; ++w) {
        const float2 both = *reinterpret_cast<const float2*>(sums + w * kSums + 2 * lane);
        cv += both.x, vv += both.y;
      }
    sums = sums == ring.sums ? ring.sums + warps * kSums : ring.sums;
    const float p = softmax16(cv * rsqrtf(vv / float(a.d) + a.eps), lane, n);
    if (a.p && warp == 0 && lane < n) a.p[t * n + lane] = p;
    if (!a.h) continue;
    float h[kPieces][kE] = {};
#pragma unroll
    for (int i = 0; i < kMax; ++i) {
      if (i >= n) break;
      const float weight = __shfl_sync(~0u, p, i);
#pragma unroll
      for (int k = 0; k < kPieces; ++k) {
        float f[kE];
        unpack<T>(v[i][k], f);
#pragma unroll
        for (int e = 0; e < kE; ++e) h[k][e] = fmaf(weight, f[e], h[k][e]);
      }
    }
    uint4* out = reinterpret_cast<uint4*>(static_cast<T*>(a.h) + t * a.d);
#pragma unroll
    for (int k = 0; k < kPieces; ++k)
      if (const int q = threadIdx.x + k * workers; q < pieces) out[q] = pack<T>(h[k]);
  }
}

// Any width and alignment: a block a token, which reads its rows twice.
template <class T>
__global__ void __launch_bounds__(256) mix_generic(const __grid_constant__ Forward a) {
  __shared__ float sums[8][2], logit[kMost];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, n = a.n;
  const int64_t end = tokens_in_use(a);
  for (int64_t t = blockIdx.x; t < end; t += gridDim.x) {
    for (int i = 0; i < n; ++i) {
      const T* v = static_cast<const T*>(a.v[i]) + t * a.d;
      float s[2] = {};
      for (int64_t x = threadIdx.x; x < a.d; x += blockDim.x) {
        const float f = load(v + x);
        s[0] = fmaf(f, a.norm[x] * a.query[x], s[0]), s[1] = fmaf(f, f, s[1]);
      }
      const float total = warp_sums(s, lane);
      if ((lane & 15) == 0) sums[warp][lane >> 4] = total;
      __syncthreads();
      if (threadIdx.x == 0) {
        float cv = 0, vv = 0;
        for (int w = 0; w < 8; ++w) cv += sums[w][0], vv += sums[w][1];
        logit[i] = cv * rsqrtf(vv / float(a.d) + a.eps);
      }
      __syncthreads();
    }
    const float p = softmax16(lane < n ? logit[lane] : 0.f, lane, n);
    if (a.p && warp == 0 && lane < n) a.p[t * n + lane] = p;
    __shared__ float weight[kMost];
    if (warp == 0 && lane < n) weight[lane] = p;
    __syncthreads();
    if (a.h)
      for (int64_t x = threadIdx.x; x < a.d; x += blockDim.x) {
        float h = 0;
        for (int i = 0; i < n; ++i) h = fmaf(weight[i], load(static_cast<const T*>(a.v[i]) + t * a.d + x), h);
        store(static_cast<T*>(a.h) + t * a.d + x, h);
      }
    __syncthreads();
  }
}

template <class T, int kMax, int kPieces>
cudaError_t launch_rows(const Forward& a, Layout l, cudaStream_t stream) {
  const cudaError_t e = fit_blocks(mix_rows<T, kMax, kPieces>, l);
  if (e != cudaSuccess) return e;
  if (a.tokens < l.blocks) l.blocks = int(a.tokens);
  mix_rows<T, kMax, kPieces><<<l.blocks, l.threads, size_t(l.shared), stream>>>(a, l.slots);
  return cudaGetLastError();
}
template <class T, int kMax>
cudaError_t launch_pieces(const Forward& a, const Layout& l, cudaStream_t stream) {
  return l.pieces == 1 ? launch_rows<T, kMax, 1>(a, l, stream) : launch_rows<T, kMax, 2>(a, l, stream);
}
template <class T>
cudaError_t launch(const Forward& a, const Layout& l, cudaStream_t stream) {
  if (l.way == Layout::generic) {
    mix_generic<T><<<int(a.tokens < l.blocks ? a.tokens : l.blocks), 256, 0, stream>>>(a);
    return cudaGetLastError();
  }
  if (a.n <= 4) return launch_pieces<T, 4>(a, l, stream);
  if (a.n <= 6) return launch_pieces<T, 6>(a, l, stream);
  if (a.n <= 9) return launch_pieces<T, 9>(a, l, stream);
  return launch_pieces<T, kMost>(a, l, stream);
}

}  // namespace

Layout forward_layout(int n, int64_t d, bool bf16) {
  Layout l{};
  const int64_t row = d * (bf16 ? 2 : 4), pieces = row / 16;
  l.blocks = 8 * kMultiprocessors;
  if (bf16 && row % 16 == 0 && direct_layout(l, n, pieces, d, 4)) return l;
  if (row % 16 || pieces > kRingWarps * 32 * 2) return l;
  l.way = Layout::ring;
  l.pieces = pieces <= kRingWarps * 32 ? 1 : 2;
  l.warps = int((pieces + 32 * l.pieces - 1) / (32 * l.pieces));
  l.threads = 32 * (l.warps + 1);
  // Blocks by registers (an estimate), and what shared memory they leave each other: rows on their way.
  const int64_t registers = 40 + l.pieces * (16 + 4 * (n <= 4 ? 4 : n <= 6 ? 6 : n <= 9 ? 9 : kMost));
  int64_t at_once = 65536 / (registers * l.threads);
  at_once = at_once < 1 ? 1 : at_once > 12 ? 12 : at_once;
  constexpr int64_t kRoom = 216 * 1024;
  const int64_t room = kRoom / at_once - shared_bytes(l.warps, 0, row) - 1024;
  const int64_t slots = room / (row + 16);
  l.slots = int(slots > 32 ? 32 : slots < 2 ? 2 : slots);
  l.shared = shared_bytes(l.warps, l.slots, row);
  l.blocks = int(at_once) * kMultiprocessors;
  return l;
}

cudaError_t forward(const Forward& a, bool bf16, cudaStream_t stream) {
  if (!a.tokens || !a.d || (!a.h && !a.p)) return cudaSuccess;
  Layout l = forward_layout(a.n, a.d, bf16);
  uintptr_t address = reinterpret_cast<uintptr_t>(a.h);
  for (int i = 0; i < a.n; ++i) address |= reinterpret_cast<uintptr_t>(a.v[i]);
  if (address % 16) l.way = Layout::generic;
  if (l.way == Layout::direct) return forward_direct(a, l, stream);
  return bf16 ? launch<__nv_bfloat16>(a, l, stream) : launch<float>(a, l, stream);
}

}  // namespace depth_mix_cuda
