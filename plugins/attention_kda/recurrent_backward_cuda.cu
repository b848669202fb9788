// recurrent_backward_cuda.cu: `kda_backward` token by token. A block walks one head of one document and 32 columns of its
// state: lanes are columns, warps are groups of rows. The first sweep keeps the state at the start of every segment;
// then each segment is run again, keeping every state, and reversed. What sums over columns (dq, dk, dg, dbeta) is
// written a slice each and added up in a fixed order afterwards.
// In reverse, S' = exp(g) S_before, S = S' + beta k e^T, dS the gradient of S from later tokens:
//   dS += scale q do^T;  dq = scale S do;  w = dS^T k;  dbeta = w.e;  dv = de = beta w
//   dk = beta dS e - S' de;  dS -= k de^T;  dg = rowsum(dS S');  dS *= exp(g)
#include "convert_cuda.cuh"
#include "problem_cuda.h"

namespace kda::cuda {
namespace {

constexpr int kWarps = 8, kColumns = 32, kTile = 8;
constexpr int64_t kBlocks = 264;  // at most; each has room for its states

struct Layout {                                     // of the workspace, in floats
  int64_t slices, blocks, rows, segment, segments;  // rows: K rounded up; segment: tokens
  int64_t kept, history, errors, partial;           // sizes: a block, a block, a block, a slice
  int64_t total() const { return blocks * (kept + history + errors) + (slices > 1 ? slices * partial : 0); }
};
int groups_of(int64_t K) { return K <= 16 ? 2 : K <= 32 ? 4 : K <= 64 ? 8 : K <= 128 ? 16 : 32; }
Layout layout(const Problem& p) {
  Layout l{};
  l.slices = (p.V + kColumns - 1) / kColumns;
  l.blocks = min(kBlocks, p.documents * p.heads * l.slices);
  l.rows = kWarps * groups_of(p.K);
  l.segment = 16;
  while (l.segment * l.segment < p.tokens) l.segment *= 2;
  l.segments = (p.tokens + l.segment - 1) / l.segment;
  l.kept = l.segments * l.rows * kColumns, l.history = l.segment * l.rows * kColumns, l.errors = l.segment * kColumns;
  l.partial = p.tokens * p.heads * (3 * p.K + 1);
  return l;
}

template <class T, int Rows>
struct Walk {  // one thread's view of its block's work
  const Problem& p;
  float (*a_s)[kWarps * Rows];
  float (*k_s)[kWarps * Rows];
  float (*q_s)[kWarps * Rows];
  float* beta_s;
  float (*red)[kWarps][kColumns];  // [2]
  int64_t h, v;                    // head; column
  bool mine;
  int turn = 0;

  // exp(g), k and scale q of tokens t0 .. t0 + kTile into shared memory; those past `end` are not read later.
  __device__ void stage(int64_t t0, int64_t end) {
    constexpr int kK = kWarps * Rows;
    __syncthreads();
    for (int x = threadIdx.x; x < kTile * kK; x += blockDim.x) {
      const int r = x / kK, i = x % kK;
      const int64_t at = ((t0 + r) * p.heads + h) * p.K + i;
      const bool in = t0 + r < end && i < p.K;
      a_s[r][i] = in ? __expf(p.g[at]) : 0.f;
      k_s[r][i] = in ? to_float(static_cast<const T*>(p.k)[at]) : 0.f;
      q_s[r][i] = in ? to_float(static_cast<const T*>(p.q)[at]) * p.scale : 0.f;
    }
    if (threadIdx.x < kTile)
      beta_s[threadIdx.x] = t0 + threadIdx.x < end ? p.beta[(t0 + threadIdx.x) * p.heads + h] : 0.f;
    __syncthreads();
  }
  __device__ float sum_warps(float x) {
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    red[turn][warp][lane] = x;
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += red[turn][w][lane];
    turn ^= 1;
    return sum;
  }
  // One token forward; returns e.
  __device__ float step(int64_t t, int r, float (&S)[Rows]) {
    const int row = (threadIdx.x >> 5) * Rows;
    float along = 0;
#pragma unroll
    for (int n = 0; n < Rows; ++n) S[n] *= a_s[r][row + n], along += k_s[r][row + n] * S[n];
    const float x = mine ? to_float(static_cast<const T*>(p.v)[(t * p.heads + h) * p.V + v]) : 0.f;
    const float e = x - sum_warps(along), u = beta_s[r] * e;
#pragma unroll
    for (int n = 0; n < Rows; ++n) S[n] += k_s[r][row + n] * u;
    return e;
  }
};

template <class T, int Rows>
__global__ void __launch_bounds__(32 * kWarps) backward_kernel(Problem p, Layout l, float* workspace) {
  constexpr int kK = kWarps * Rows;
  __shared__ float a_s[kTile][kK], k_s[kTile][kK], q_s[kTile][kK], beta_s[kTile], red[2][kWarps][kColumns];
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, row = warp * Rows;
  float* kept = workspace + blockIdx.x * (l.kept + l.history + l.errors);
  float *history = kept + l.kept, *errors = history + l.history;
  float* partials = workspace + l.blocks * (l.kept + l.history + l.errors);
  for (int64_t item = blockIdx.x; item < p.documents * p.heads * l.slices; item += gridDim.x) {
    const int64_t slice = item % l.slices, pair = item / l.slices, h = pair % p.heads, d = pair / p.heads;
    const int64_t lo = p.cu[d], hi = p.cu[d + 1], v = slice * kColumns + lane, matrix = pair * p.K * p.V + v;
    Walk<T, Rows> walk{p, a_s, k_s, q_s, beta_s, red, h, v, v < p.V};
    const bool mine = walk.mine;
    float* part = partials + slice * l.partial;  // dq, dk, dg [tokens, heads, K], dbeta [tokens, heads]
    const int64_t keys = p.tokens * p.heads * p.K;
    float S[Rows], dS[Rows];
#pragma unroll
    for (int n = 0; n < Rows; ++n) {
      const bool in = mine && row + n < p.K;
      const int64_t at = matrix + (row + n) * p.V;
      S[n] = in && p.s0 ? p.s0[at] : 0.f, dS[n] = in && p.d_state ? p.d_state[at] : 0.f;
    }
    const int64_t segments = (hi - lo + l.segment - 1) / l.segment;
    for (int64_t s = 0; s < segments; ++s) {
#pragma unroll
      for (int n = 0; n < Rows; ++n) kept[(s * kK + row + n) * kColumns + lane] = S[n];
      if (s + 1 == segments) break;
      for (int64_t t0 = lo + s * l.segment; t0 < lo + (s + 1) * l.segment; t0 += kTile) {
        walk.stage(t0, hi);
        for (int r = 0; r < kTile; ++r) walk.step(t0 + r, r, S);
      }
    }
    for (int64_t s = segments - 1; s >= 0; --s) {
      const int64_t from = lo + s * l.segment, end = min(hi, from + l.segment);
#pragma unroll
      for (int n = 0; n < Rows; ++n) S[n] = kept[(s * kK + row + n) * kColumns + lane];
      for (int64_t t0 = from; t0 < end; t0 += kTile) {
        walk.stage(t0, end);
        for (int r = 0; r < kTile && t0 + r < end; ++r) {
#pragma unroll
          for (int n = 0; n < Rows; ++n) history[((t0 + r - from) * kK + row + n) * kColumns + lane] = S[n];
          const float e = walk.step(t0 + r, r, S);
          if (warp == 0) errors[(t0 + r - from) * kColumns + lane] = e;
        }
      }
      for (int64_t t0 = from + (end - 1 - from) / kTile * kTile; t0 >= from; t0 -= kTile) {
        walk.stage(t0, end);
        for (int r = int(min(end - t0, int64_t(kTile))) - 1; r >= 0; --r) {
          const int64_t t = t0 + r, value = (t * p.heads + h) * p.V + v;
          const float up = mine && p.d_o ? to_float(static_cast<const T*>(p.d_o)[value]) : 0.f;
          const float e = errors[(t - from) * kColumns + lane], beta = beta_s[r];
          float decayed[Rows], sum[Rows], along = 0;
#pragma unroll
          for (int n = 0; n < Rows; ++n) {
            decayed[n] = a_s[r][row + n] * history[((t - from) * kK + row + n) * kColumns + lane];
            dS[n] += q_s[r][row + n] * up;
            along += dS[n] * k_s[r][row + n];
            sum[n] = (decayed[n] + beta * k_s[r][row + n] * e) * up * p.scale;
          }
          const float dq = sum_lanes(sum), write = walk.sum_warps(along), de = beta * write;
#pragma unroll
          for (int n = 0; n < Rows; ++n) sum[n] = beta * dS[n] * e - decayed[n] * de;
          const float dk = sum_lanes(sum);
#pragma unroll
          for (int n = 0; n < Rows; ++n) {
            dS[n] -= k_s[r][row + n] * de;
            sum[n] = dS[n] * decayed[n];
            dS[n] *= a_s[r][row + n];
          }
          const float dg = sum_lanes(sum);
          float own[1] = {write * e};
          const float dbeta = sum_lanes(own);
          if (mine && warp == 0 && p.dv) static_cast<T*>(p.dv)[value] = from_float<T>(de);
          constexpr int kLanes = 32 / Rows;  // that return the same sum
          const int i = row + lane / kLanes;
          const int64_t at = (t * p.heads + h) * p.K + i;
          if (lane % kLanes == 0 && i < p.K) {
            if (l.slices > 1) {
              part[at] = dq, part[keys + at] = dk, part[2 * keys + at] = dg;
            } else {
              if (p.dq) static_cast<T*>(p.dq)[at] = from_float<T>(dq);
              if (p.dk) static_cast<T*>(p.dk)[at] = from_float<T>(dk);
              if (p.dg) p.dg[at] = dg;
            }
          }
          if (threadIdx.x == 0) {
            if (l.slices > 1)
              part[3 * keys + t * p.heads + h] = dbeta;
            else if (p.dbeta)
              p.dbeta[t * p.heads + h] = dbeta;
          }
        }
      }
    }
    if (p.ds0 && mine)
#pragma unroll
      for (int n = 0; n < Rows; ++n)
        if (row + n < p.K) p.ds0[matrix + (row + n) * p.V] = dS[n];
    __syncthreads();
  }
}

// Adds up the slices of the tokens in use.
template <class T>
__global__ void add_slices(Problem p, int64_t slices, int64_t partial, const float* parts) {
  const int64_t keys = p.tokens * p.heads * p.K, used = p.cu[p.documents] * p.heads;
  const int64_t step = int64_t(gridDim.x) * blockDim.x, first = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  auto total = [&](int64_t at) {
    float sum = 0;
    for (int64_t s = 0; s < slices; ++s) sum += parts[s * partial + at];
    return sum;
  };
  for (int64_t at = first; at < used * p.K; at += step) {
    if (p.dq) static_cast<T*>(p.dq)[at] = from_float<T>(total(at));
    if (p.dk) static_cast<T*>(p.dk)[at] = from_float<T>(total(keys + at));
    if (p.dg) p.dg[at] = total(2 * keys + at);
  }
  for (int64_t at = first; at < used && p.dbeta; at += step) p.dbeta[at] = total(3 * keys + at);
}

template <class T>
void launch(const Problem& p, float* workspace, cudaStream_t stream) {
  const Layout l = layout(p);
  if (!l.blocks) return;
  const auto blocks = unsigned(l.blocks);
  switch (groups_of(p.K)) {
    case 2:
      backward_kernel<T, 2><<<blocks, 32 * kWarps, 0, stream>>>(p, l, workspace);
      break;
    case 4:
      backward_kernel<T, 4><<<blocks, 32 * kWarps, 0, stream>>>(p, l, workspace);
      break;
    case 8:
      backward_kernel<T, 8><<<blocks, 32 * kWarps, 0, stream>>>(p, l, workspace);
      break;
    case 16:
      backward_kernel<T, 16><<<blocks, 32 * kWarps, 0, stream>>>(p, l, workspace);
      break;
    default:
      backward_kernel<T, 32><<<blocks, 32 * kWarps, 0, stream>>>(p, l, workspace);
  }
  if (l.slices > 1 && p.tokens)
    add_slices<T>
        <<<1056, 256, 0, stream>>>(p, l.slices, l.partial, workspace + l.blocks * (l.kept + l.history + l.errors));
}

}  // namespace

int64_t recurrent_backward_workspace(const Problem& p) { return 4 * layout(p).total(); }

cudaError_t recurrent_backward(const Problem& p, void* workspace, cudaStream_t stream) {
  p.bf16 ? launch<bf16>(p, static_cast<float*>(workspace), stream)
         : launch<float>(p, static_cast<float*>(workspace), stream);
  return cudaGetLastError();
}

}  // namespace kda::cuda
