// Backward of depth_mix: dh and every source are read from device memory once, and each gradient is written, or read and
// written, once. The gradient of norm * query is summed by each thread for its own channels over all tokens of its block,
// then over the blocks in their order, so that equal inputs give equal bits.
#include "depth_mix_cuda.cuh"

namespace depth_mix_cuda {
namespace {

// The rows of a token: dh, v_0 .. v_{n-1}, and what those dv hold that are added to. dh goes to registers; the sources stay in
// shared memory until their gradient is written.
template <class T, int kPieces>
__global__ void __launch_bounds__(32 * (kRingWarps + 1), 1) unmix_rows(const __grid_constant__ Backward a, int slots) {
  extern __shared__ __align__(128) unsigned char shared[];
  constexpr int kE = kPiece<T>;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x >> 5) - 1, workers = warps * 32;
  const int pieces = int(a.d / kE), n = a.n;
  const int64_t end = tokens_in_use(a);
  Ring ring(shared, warps, slots, uint32_t(a.d * sizeof(T)));
  if (warp == warps) {
    if (lane) return;
    for (int64_t t = blockIdx.x; t < end; t += gridDim.x) {
      ring.fill(static_cast<const T*>(a.dh) + t * a.d);
      for (int i = 0; i < n; ++i) ring.fill(static_cast<const T*>(a.v[i]) + t * a.d);
      for (int i = 0; i < n; ++i)
        if (a.add >> i & 1) ring.fill(static_cast<const T*>(a.dv[i]) + t * a.d);
    }
    return;
  }
  const bool sum_c = a.partial != nullptr;
  float c[kPieces][kE], dc[kPieces][kE] = {};  // norm * query of this thread's channels, and its gradient
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    const int q = threadIdx.x + k * workers;
#pragma unroll
    for (int e = 0; e < kE; ++e)
      c[k][e] = q < pieces ? a.norm[int64_t(q) * kE + e] * a.query[int64_t(q) * kE + e] : 0.f;
  }
  float* sums = ring.sums;  // [warps, kSums]
  for (int64_t t = blockIdx.x; t < end; t += gridDim.x) {
    float u[kPieces][kE];  // dh
    {
      const uint4* row = ring.wait();
#pragma unroll
      for (int k = 0; k < kPieces; ++k) {
        const int q = threadIdx.x + k * workers;
        unpack<T>(q < pieces ? row[q] : uint4{}, u[k]);
      }
      ring.release(ring.slot, lane);
      ring.next();
    }
    int source = ring.slot;  // of v_0
    for (int i0 = 0; i0 < n; i0 += 4) {
      float s[16] = {};  // of four sources: c . v, then v . v, then dh . v
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (i0 + j >= n) continue;
        const uint4* row = ring.wait();
#pragma unroll
        for (int k = 0; k < kPieces; ++k) {
          const int q = threadIdx.x + k * workers;
          if (q >= pieces) continue;
          float f[kE];
          unpack<T>(row[q], f);
#pragma unroll
          for (int e = 0; e < kE; ++e)
            s[j] = fmaf(f[e], c[k][e], s[j]), s[4 + j] = fmaf(f[e], f[e], s[4 + j]),
            s[8 + j] = fmaf(f[e], u[k][e], s[8 + j]);
        }
        ring.next();
      }
      const float total = warp_sums(s, lane);  // of sum (lane / 2) / 4 of source i0 + lane / 2 % 4
      if ((lane & 1) == 0) sums[warp * kSums + (lane >> 3) * 16 + i0 + ((lane >> 1) & 3)] = total;
    }
    workers_sync(workers);
    float cv = 0, vv = 0, uv = 0;  // of source `lane`
    if (lane < n)
      for (int w = 0; w < warps; ++w) {
        const float* s = sums + w * kSums + lane;
        cv += s[0], vv += s[16], uv += s[32];
      }
    sums = sums == ring.sums ? ring.sums + warps * kSums : ring.sums;
    const Factors mine = factors(cv, vv, uv, a.d, a.eps, lane, n);
    for (int i = 0; i < n; ++i) {
      const float p = __shfl_sync(~0u, mine.p, i), beta = __shfl_sync(~0u, mine.beta, i);
      const float gamma = __shfl_sync(~0u, mine.gamma, i);
      const bool add = a.add >> i & 1;
      const uint4 *row = ring.row(source), *held = add ? ring.wait() : nullptr;
      uint4* out = a.dv[i] ? reinterpret_cast<uint4*>(static_cast<T*>(a.dv[i]) + t * a.d) : nullptr;
#pragma unroll
      for (int k = 0; k < kPieces; ++k) {
        const int q = threadIdx.x + k * workers;
        if (q >= pieces) continue;
        float f[kE];
        unpack<T>(row[q], f);
        if (out) {
          float r[kE] = {};
          if (add) unpack<T>(held[q], r);
#pragma unroll
          for (int e = 0; e < kE; ++e) r[e] += fmaf(gamma, f[e], fmaf(beta, c[k][e], p * u[k][e]));
          out[q] = pack<T>(r);
        }
#pragma unroll
        for (int e = 0; e < kE; ++e) dc[k][e] = fmaf(beta, f[e], dc[k][e]);
      }
      ring.release(source, lane);
      if (++source == slots) source = 0;
      if (add) {
        ring.release(ring.slot, lane);
        ring.next();
      }
    }
  }
  if (!sum_c) return;
  float* part = a.partial + int64_t(blockIdx.x) * a.d;
#pragma unroll
  for (int k = 0; k < kPieces; ++k) {
    const int q = threadIdx.x + k * workers;
    if (q >= pieces) continue;
#pragma unroll
    for (int e = 0; e < kE; ++e) part[int64_t(q) * kE + e] = dc[k][e];
  }
}

// Any width and alignment: a block a token, which reads its rows twice; a thread sums its own channels.
template <class T>
__global__ void __launch_bounds__(256) unmix_generic(const __grid_constant__ Backward a) {
  __shared__ float sums[8][4], total[3][kMost];
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, n = a.n;
  const int64_t end = tokens_in_use(a);
  float* part = a.partial ? a.partial + int64_t(blockIdx.x) * a.d : nullptr;
  if (part)
    for (int64_t x = threadIdx.x; x < a.d; x += blockDim.x) part[x] = 0;
  for (int64_t t = blockIdx.x; t < end; t += gridDim.x) {
    const T* u = static_cast<const T*>(a.dh) + t * a.d;
    for (int i = 0; i < n; ++i) {
      const T* v = static_cast<const T*>(a.v[i]) + t * a.d;
      float s[4] = {};
      for (int64_t x = threadIdx.x; x < a.d; x += blockDim.x) {
        const float f = load(v + x);
        s[0] = fmaf(f, a.norm[x] * a.query[x], s[0]), s[1] = fmaf(f, f, s[1]), s[2] = fmaf(f, load(u + x), s[2]);
      }
      const float one = warp_sums(s, lane);
      if ((lane & 7) == 0) sums[warp][lane >> 3] = one;
      __syncthreads();
      if (threadIdx.x < 3) {
        float all = 0;
        for (int w = 0; w < 8; ++w) all += sums[w][threadIdx.x];
        total[threadIdx.x][i] = all;
      }
      __syncthreads();
    }
    const int of = lane < n ? lane : 0;
    const Factors mine = factors(total[0][of], total[1][of], total[2][of], a.d, a.eps, lane, n);
    for (int i = 0; i < n; ++i) {
      const float p = __shfl_sync(~0u, mine.p, i), beta = __shfl_sync(~0u, mine.beta, i);
      const float gamma = __shfl_sync(~0u, mine.gamma, i);
      const T* v = static_cast<const T*>(a.v[i]) + t * a.d;
      T* out = a.dv[i] ? static_cast<T*>(a.dv[i]) + t * a.d : nullptr;
      for (int64_t x = threadIdx.x; x < a.d; x += blockDim.x) {
        const float f = load(v + x);
        if (out) {
          const float y = fmaf(gamma, f, fmaf(beta, a.norm[x] * a.query[x], p * load(u + x)));
          store(out + x, a.add >> i & 1 ? load(out + x) + y : y);
        }
        if (part) part[x] = fmaf(beta, f, part[x]);
      }
    }
    __syncthreads();
  }
}

// The sums of all blocks: 32 channels a block, 8 threads a channel.
__global__ void __launch_bounds__(256) finish(const __grid_constant__ Backward a, int parts) {
  __shared__ float sums[8][33];
  const int x = threadIdx.x & 31, y = threadIdx.x >> 5;
  const int64_t channel = int64_t(blockIdx.x) * 32 + x;
  float s = 0;
  if (channel < a.d)
    for (int k = y; k < parts; k += 8) s += a.partial[k * a.d + channel];
  sums[y][x] = s;
  __syncthreads();
  if (y || channel >= a.d) return;
  float dc = 0;
  for (int k = 0; k < 8; ++k) dc += sums[k][x];
  if (a.dnorm) a.dnorm[channel] = dc * a.query[channel] + (a.add_norm ? a.dnorm[channel] : 0.f);
  if (a.dquery) a.dquery[channel] = dc * a.norm[channel] + (a.add_query ? a.dquery[channel] : 0.f);
}

template <class T, int kPieces>
cudaError_t launch_rows(const Backward& a, Layout& l, cudaStream_t stream) {
  const cudaError_t e = fit_blocks(unmix_rows<T, kPieces>, l);
  if (e != cudaSuccess) return e;
  if (a.tokens < l.blocks) l.blocks = int(a.tokens);
  unmix_rows<T, kPieces><<<l.blocks, l.threads, size_t(l.shared), stream>>>(a, l.slots);
  return cudaGetLastError();
}
template <class T>
cudaError_t launch(const Backward& a, Layout& l, cudaStream_t stream) {
  if (l.way == Layout::ring) return l.pieces == 1 ? launch_rows<T, 1>(a, l, stream) : launch_rows<T, 2>(a, l, stream);
  if (a.tokens < l.blocks) l.blocks = int(a.tokens);
  unmix_generic<T><<<l.blocks, 256, 0, stream>>>(a);
  return cudaGetLastError();
}

}  // namespace

Layout backward_layout(int n, int64_t d, bool bf16) {
  Layout l{};
  const int64_t row = d * (bf16 ? 2 : 4), pieces = row / 16;
  l.blocks = 4 * kMultiprocessors;
  constexpr int64_t kRoom = 216 * 1024;
  if (bf16 && row % 16 == 0 && direct_layout(l, n, pieces, d, 2)) return l;
  if (row % 16 || pieces > kRingWarps * 32 * 2 || (n + 2) * (row + 16) + shared_bytes(kRingWarps, 0, row) > kRoom)
    return l;
  l.way = Layout::ring;
  l.pieces = pieces <= kRingWarps * 32 ? 1 : 2;
  l.warps = int((pieces + 32 * l.pieces - 1) / (32 * l.pieces));
  l.threads = 32 * (l.warps + 1);
  // Blocks by registers (an estimate) and by shared memory: the sources of a token, and half as much on its way.
  int64_t at_once = 65536 / ((48 + 32 * l.pieces) * l.threads);
  const int64_t by_room = kRoom * 2 / (3 * (n + 2) * row);
  at_once = at_once > by_room ? by_room : at_once;
  at_once = at_once < 1 ? 1 : at_once > 8 ? 8 : at_once;
  const int64_t room = kRoom / at_once - shared_bytes(l.warps, 0, row) - 1024;
  int64_t slots = room / (row + 16);
  slots = slots > 4 * n + 4 ? 4 * n + 4 : slots;
  l.slots = int(slots < n + 2 ? n + 2 : slots);
  l.shared = shared_bytes(l.warps, l.slots, row);
  l.blocks = int(at_once) * kMultiprocessors;
  return l;
}

cudaError_t backward(const Backward& given, bool bf16, cudaStream_t stream) {
  Backward a = given;
  if (!a.dnorm && !a.dquery) a.partial = nullptr;
  bool any = a.partial;
  uintptr_t address = reinterpret_cast<uintptr_t>(a.dh);
  for (int i = 0; i < a.n; ++i) {
    if (!a.dv[i]) a.add &= ~(1u << i);
    address |= reinterpret_cast<uintptr_t>(a.v[i]) | reinterpret_cast<uintptr_t>(a.dv[i]), any |= a.dv[i] != nullptr;
  }
  a.add &= (1u << a.n) - 1;
  if (!a.d || !any) return cudaSuccess;
  Layout l = backward_layout(a.n, a.d, bf16);
  if (address % 16)
    l.way = Layout::generic, l.blocks = l.blocks > 4 * kMultiprocessors ? 4 * kMultiprocessors : l.blocks;
  if (a.tokens) {
    const cudaError_t e = l.way == Layout::direct ? backward_direct(a, l, stream)
                          : bf16                  ? launch<__nv_bfloat16>(a, l, stream)
                                                  : launch<float>(a, l, stream);
    if (e != cudaSuccess) return e;
  } else {
    l.blocks = 0;
  }
  if (!a.partial) return cudaSuccess;
  finish<<<unsigned((a.d + 31) / 32), 256, 0, stream>>>(a, l.blocks);
  return cudaGetLastError();
}

}  // namespace depth_mix_cuda
