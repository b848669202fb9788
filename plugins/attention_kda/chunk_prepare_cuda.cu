// chunk_prepare_cuda.cu: what of a chunk does not depend on the state (chunk_cuda.h), for every chunk and head at once.
// One block a chunk and head. A thread owns two channels of one sub-block of 16 rows, and has their decays in registers.
//
// Products of rows r and j see exp(G_r - G_j). Block (I, J) of sub-blocks, J <= I, is a product of rows of I scaled by
// exp(G_r - anchor_I) and rows of J scaled by exp(anchor_I - G_j). With the anchor before the first row of I both factors are
// at most one for J < I, whatever the decay; diagonal blocks are then summed pair by pair. Dense: the anchor is the middle of
// I, which serves the diagonal too while sixteen decays together stay above exp(-80).
#include "chunk_cuda.cuh"

namespace kda::cuda {
namespace {

constexpr int kBlocks = kChunk / kBlock;
constexpr int kPrefixRows = kBlock * kBlocks * (kBlocks + 1) / 2;  // rows 0 .. 16 I + 16 for every I
__device__ constexpr int prefix_row(int I) { return kBlock * I * (I + 1) / 2; }

template <int D>
struct Shared {
  static constexpr int kRow = D + 8;  // elements; rows start in different banks
  static constexpr int kInverse = 68;
  // While products run: rows of k and of scale q times exp(G - anchor), and of k times exp(anchor - G) for each anchor.
  static constexpr int kKup = 0, kQup = kKup + kChunk * kRow * 2, kDown = kQup + kChunk * kRow * 2;
  static constexpr int kEnd = kDown + kPrefixRows * kRow * 2;
  // Then, in the same place: beta M, its inverse, and a product between.
  static constexpr int kL = 0, kA = kL + kChunk * kInverse * 4, kT = kA + kChunk * kInverse * 4;
  static_assert(kT + 32 * 36 * 4 <= kEnd);
  static constexpr int kTotals = kEnd;                          // float [4, D]
  static constexpr int kMiddles = kTotals + kBlocks * D * 4;    // float [4, D]
  static constexpr int kBeta = kMiddles + kBlocks * D * 4;      // float [64]
  static constexpr int kOwn = kBeta + kChunk * 4;               // float [D / 64][64]
  static constexpr int kDiagonal = kOwn + D / 64 * kChunk * 4;  // float [4][16][32], not dense
  static constexpr int size(bool dense) { return kDiagonal + (dense ? 0 : kBlocks * 16 * 32 * 4); }
};

// Pairs of diagonal blocks: M_rj to slot r of column j of a sub-block, P_rj to slot 16 + r. Half a warp takes four columns, a
// lane D / 16 channels of them; w = k_j exp(G_r - G_j) is walked down the rows as a running product.
template <int D>
__device__ inline void diagonal_pairs(const bf16* k, const bf16* q, const float* a, float scale, float* out) {
  constexpr int kParts = D / 64, kRow = D + 8, kDecayRow = D + 4;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, c = lane & 15;
  for (int task = warp; task < 2 * kBlocks; task += D / 16) {
    const int I = task >> 1, first = (task & 1) * 8, j0 = first + (lane >> 4) * 4;
    float w[4][kParts][4] = {};
    for (int r = first; r < kBlock; ++r) {
      float x[8] = {};
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const int row = I * kBlock + r, at = part * 64 + c * 4;
        const float4 decay = *reinterpret_cast<const float4*>(a + row * kDecayRow + at);
        const uint2 k2 = *reinterpret_cast<const uint2*>(k + row * kRow + at),
                    q2 = *reinterpret_cast<const uint2*>(q + row * kRow + at);
        const float2 k0 = unpack(k2.x), k1 = unpack(k2.y), q0 = unpack(q2.x), q1 = unpack(q2.y);
        const float as[4] = {decay.x, decay.y, decay.z, decay.w}, ks[4] = {k0.x, k0.y, k1.x, k1.y},
                    qs[4] = {q0.x, q0.y, q1.x, q1.y};
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float& at_j = w[j][part][e];
            at_j = r == j0 + j ? ks[e] : at_j * as[e];
            x[j] += at_j * ks[e], x[4 + j] += at_j * qs[e];
          }
      }
      // Sums over the sixteen lanes, as sum_lanes.
#pragma unroll
      for (int half = 4, bit = 8; half >= 1; half /= 2, bit /= 2)
#pragma unroll
        for (int n = 0; n < 4; ++n) {
          if (n >= half) break;
          const bool upper = lane & bit;
          const float keep = upper ? x[n + half] : x[n], give = upper ? x[n] : x[n + half];
          x[n] = keep + __shfl_xor_sync(~0u, give, bit);
        }
      const float sum = x[0] + __shfl_xor_sync(~0u, x[0], 1);
      const int slot = c >> 1;
      if ((lane & 1) == 0)
        out[(I * kBlock + j0 + (slot & 3)) * 32 + (slot >> 2) * 16 + r] = slot >> 2 ? sum * scale : sum;
    }
  }
}

// D [16, 8] = A [16, K] B [K, 8] in shared memory, rows of 68 and of `b_row` floats.
template <int K>
__device__ inline void product(float (&d)[4], const float* A, const float* B, int b_row) {
  const int lane = threadIdx.x & 31, g = lane >> 2, c = lane & 3;
  d[0] = d[1] = d[2] = d[3] = 0;
#pragma unroll
  for (int k = 0; k < K; k += 8) {
    const float* at = A + g * 68 + k + c;
    const uint32_t a[4] = {to_tf32(at[0]), to_tf32(at[8 * 68]), to_tf32(at[4]), to_tf32(at[8 * 68 + 4])};
    mma_tf32(d, a, to_tf32(B[(k + c) * b_row + g]), to_tf32(B[(k + c + 4) * b_row + g]));
  }
}
__device__ inline void put(const float (&d)[4], float* to, int row, float sign) {
  const int lane = threadIdx.x & 31;
  float* at = to + (lane >> 2) * row + 2 * (lane & 3);
  *reinterpret_cast<float2*>(at) = make_float2(sign * d[0], sign * d[1]);
  *reinterpret_cast<float2*>(at + 8 * row) = make_float2(sign * d[2], sign * d[3]);
}

// A = (I + L)^-1, rows of 68 floats. Diagonal blocks of 16 by substitution; then [[A0, 0], [-A1 L10 A0, A1]] of two pairs of
// 16 and of the pair of 32, in tf32: A is rounded to less afterwards. T: [32, 36] between.
template <int Warps>
__device__ inline void invert(const float* L, float* A, float* T) {
  constexpr int kS = 68, kT = 36;
  const int thread = threadIdx.x, warp = thread >> 5;
  if (thread < kChunk) {  // column thread % 16
    const int at = thread / 16 * 16, column = thread % 16;
    float x[16];
#pragma unroll
    for (int r = 0; r < 16; ++r) {
      float sum[4] = {r == column ? 1.f : 0.f, 0, 0, 0};
#pragma unroll
      for (int i = 0; i < r; i += 4) {
        const float4 l = *reinterpret_cast<const float4*>(L + (at + r) * kS + at + i);
        sum[0] -= l.x * x[i];
        if (i + 1 < r) sum[1] -= l.y * x[i + 1];
        if (i + 2 < r) sum[2] -= l.z * x[i + 2];
        if (i + 3 < r) sum[3] -= l.w * x[i + 3];
      }
      x[r] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
      A[(at + r) * kS + at + column] = x[r];
    }
  } else {  // above the diagonal blocks of each pair
    for (int x = thread - kChunk; x < 512; x += 32 * Warps - kChunk)
      A[(x / 256 * 32 + x / 16 % 16) * kS + x / 256 * 32 + 16 + x % 16] = 0;
  }
  __syncthreads();
  float d[4];
  const int at = warp / 2 * 32, c = warp % 2 * 8;  // warps 0 .. 3: pair, columns
  if (warp < 4) {
    product<16>(d, L + (at + 16) * kS + at, A + at * kS + at + c, kS);
    put(d, T + warp / 2 * 16 * kT + c, kT, 1);
  }
  __syncthreads();
  if (warp < 4) {
    product<16>(d, A + (at + 16) * kS + at + 16, T + warp / 2 * 16 * kT + c, kT);
    put(d, A + (at + 16) * kS + at + c, kS, -1);
  }
  __syncthreads();
  for (int task = warp; task < 8; task += Warps) {
    const int row = task / 4 * 16, column = task % 4 * 8;
    product<32>(d, L + (32 + row) * kS, A + column, kS);
    put(d, T + row * kT + column, kT, 1);
  }
  __syncthreads();
  for (int task = warp; task < 8; task += Warps) {
    const int row = task / 4 * 16, column = task % 4 * 8;
    product<32>(d, A + (32 + row) * kS + 32, T + column, kT);
    put(d, A + (32 + row) * kS + column, kS, -1);
  }
  __syncthreads();
}

template <int D, bool Dense>
__global__ void __launch_bounds__(2 * D, D == 128 ? 2 : 3) prepare_kernel(Problem p, unsigned char* records) {
  using R = Record<D>;
  using X = Shared<D>;
  constexpr int kHalves = D / 64;  // warps that share a sub-block
  extern __shared__ __align__(1024) unsigned char shared_raw[];
  bf16* k_up = reinterpret_cast<bf16*>(shared_raw + X::kKup);
  bf16* q_up = reinterpret_cast<bf16*>(shared_raw + X::kQup);
  bf16* k_down = reinterpret_cast<bf16*>(shared_raw + X::kDown);
  float* totals = reinterpret_cast<float*>(shared_raw + X::kTotals);
  float* middles = reinterpret_cast<float*>(shared_raw + X::kMiddles);
  float* beta_s = reinterpret_cast<float*>(shared_raw + X::kBeta);
  float* own_s = reinterpret_cast<float*>(shared_raw + X::kOwn);
  float* diagonal = reinterpret_cast<float*>(shared_raw + X::kDiagonal);
  const int64_t number = blockIdx.x / p.heads, h = blockIdx.x % p.heads;
  const Place at = place_of(p, number);
  if (at.n == 0) return;
  unsigned char* record = records + (number * p.heads + h) * R::kSize;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, I = warp / kHalves,
            channel = (warp % kHalves * 32 + lane) * 2;

  // ---- decays of this thread's sub-block, in powers of two
  uint32_t k[kBlock], q[kBlock];
  float2 g[kBlock];
  const int64_t first = ((at.t + I * kBlock) * p.heads + h) * D + channel, step = p.heads * D;
#pragma unroll
  for (int r = 0; r < kBlock; ++r) {
    const bool in = I * kBlock + r < at.n;
    const int64_t x = first + r * step;
    k[r] = in ? *reinterpret_cast<const uint32_t*>(static_cast<const bf16*>(p.k) + x) : 0u;
    q[r] = in ? *reinterpret_cast<const uint32_t*>(static_cast<const bf16*>(p.q) + x) : 0u;
    g[r] = in ? *reinterpret_cast<const float2*>(p.g + x) : make_float2(0, 0);
  }
  if (threadIdx.x < kChunk)
    beta_s[threadIdx.x] = int(threadIdx.x) < at.n ? strength(p.beta[(at.t + threadIdx.x) * p.heads + h]) : 0.f;
  {
    float own[kBlock];
#pragma unroll
    for (int r = 0; r < kBlock; ++r) {
      const float2 kr = unpack(k[r]), qr = unpack(q[r]);
      own[r] = (kr.x * qr.x + kr.y * qr.y) * p.scale;
    }
    const float sum = sum_lanes(own);
    if (lane % 2 == 0) own_s[warp % kHalves * kChunk + I * kBlock + lane / 2] = sum;
  }
  if constexpr (!Dense) {  // in the place of what comes later
    float* a = reinterpret_cast<float*>(shared_raw + X::kDown);
#pragma unroll
    for (int r = 0; r < kBlock; ++r) {
      const int row = I * kBlock + r;
      *reinterpret_cast<uint32_t*>(k_up + row * X::kRow + channel) = k[r];
      *reinterpret_cast<uint32_t*>(q_up + row * X::kRow + channel) = q[r];
      *reinterpret_cast<float2*>(a + row * (D + 4) + channel) =
          make_float2(power2(g[r].x * kLog2e), power2(g[r].y * kLog2e));
    }
    __syncthreads();
    diagonal_pairs<D>(k_up, q_up, a, p.scale, diagonal);
  }
  float2 sum = make_float2(0, 0), middle = sum;
#pragma unroll
  for (int r = 0; r < kBlock; ++r) {
    g[r].x *= kLog2e, g[r].y *= kLog2e;
    sum.x += g[r].x, sum.y += g[r].y;
    if (Dense && r == kBlock / 2 - 1) middle = sum;
  }
  *reinterpret_cast<float2*>(totals + I * D + channel) = sum;
  *reinterpret_cast<float2*>(middles + I * D + channel) = middle;
  __syncthreads();

  if (threadIdx.x < kChunk) {
    reinterpret_cast<float*>(record + R::kBeta)[threadIdx.x] = beta_s[threadIdx.x];
    reinterpret_cast<float*>(record + R::kOwn)[threadIdx.x] =
        own_s[threadIdx.x] + (kHalves > 1 ? own_s[kChunk + threadIdx.x] : 0.f);
  }
  // ---- factors between this sub-block and the others. Sums of one sign: no decay drowns in a fiercer one.
  float2 before = middle, after = make_float2(0, 0),
         towards[kBlocks];  // towards[J]: exp(anchor_J - end of this), J > I
#pragma unroll
  for (int J = 0; J < kBlocks; ++J) {
    const float2 total = *reinterpret_cast<const float2*>(totals + J * D + channel);
    if (J < I) before.x += total.x, before.y += total.y;
    if (J > I) {
      const float2 m = *reinterpret_cast<const float2*>(middles + J * D + channel);
      towards[J] = make_float2(power2(after.x + m.x), power2(after.y + m.y));
      after.x += total.x, after.y += total.y;
    }
  }
  if (I == 0)
    *reinterpret_cast<float2*>(record + R::kLast + channel * 4) =
        make_float2(power2(sum.x + after.x), power2(sum.y + after.y));
  const float2 enter = make_float2(power2(before.x), power2(before.y)),
               leave = make_float2(power2(after.x), power2(after.y));
  bf16* image = reinterpret_cast<bf16*>(record) + channel / 64 * (R::kTile / 2);
  float2 G = make_float2(-middle.x, -middle.y);  // from the anchor
#pragma unroll
  for (int r = 0; r < kBlock; ++r) {
    const int row = I * kBlock + r, to = swizzle(row, channel % 64);
    const float2 kr = unpack(k[r]), qr = unpack(q[r]);
    G.x += g[r].x, G.y += g[r].y;
    const float2 up = make_float2(power2(G.x), power2(G.y));
    const float2 ku = make_float2(kr.x * up.x, kr.y * up.y),
                 qu = make_float2(qr.x * p.scale * up.x, qr.y * p.scale * up.y);
    *reinterpret_cast<uint32_t*>(k_up + row * X::kRow + channel) = pack(ku.x, ku.y);
    *reinterpret_cast<uint32_t*>(q_up + row * X::kRow + channel) = pack(qu.x, qu.y);
    *reinterpret_cast<uint32_t*>(image + R::kKin / 2 + to) = pack(ku.x * enter.x, ku.y * enter.y);
    *reinterpret_cast<uint32_t*>(image + R::kQin / 2 + to) = pack(qu.x * enter.x, qu.y * enter.y);
    if constexpr (Dense)
      *reinterpret_cast<uint32_t*>(k_down + (prefix_row(I) + row) * X::kRow + channel) =
          pack(kr.x * power2(-G.x), kr.y * power2(-G.y));
  }
  float2 rest = make_float2(0, 0);  // after row r
#pragma unroll
  for (int r = kBlock - 1; r >= 0; --r) {
    const int row = I * kBlock + r;
    const float2 kr = unpack(k[r]), kd = make_float2(kr.x * power2(rest.x), kr.y * power2(rest.y));
    rest.x += g[r].x, rest.y += g[r].y;
    *reinterpret_cast<uint32_t*>(image + R::kKrest / 2 + swizzle(row, channel % 64)) =
        pack(kd.x * leave.x, kd.y * leave.y);
#pragma unroll
    for (int J = 1; J < kBlocks; ++J)
      if (J > I)
        *reinterpret_cast<uint32_t*>(k_down + (prefix_row(J) + row) * X::kRow + channel) =
            pack(kd.x * towards[J].x, kd.y * towards[J].y);
  }
  __syncthreads();

  // ---- P and beta M: a warp takes rows of one sub-block, of q or of k, against all rows up to its end
  constexpr int kTasks = 2 * kBlocks, kWarps = D / 16, kRounds = (kTasks + kWarps - 1) / kWarps;
  float found[kRounds][8][4];
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int task = warp + round * kWarps, T = task >> 1;
    const bf16* up = task & 1 ? k_up : q_up;
    float(&d)[8][4] = found[round];
#pragma unroll
    for (int n = 0; n < 8; ++n) d[n][0] = d[n][1] = d[n][2] = d[n][3] = 0;
    for (int i = 0; i < D; i += 16) {
      uint32_t a[4];
      load_matrices(a, up + (T * kBlock + (lane & 15)) * X::kRow + i + (lane >> 4) * 8);
#pragma unroll
      for (int J = 0; J < kBlocks; ++J)
        if (Dense ? J <= T : J < T) {
          uint32_t b[4];
          load_matrices(b, k_down + (prefix_row(T) + J * kBlock + (lane >> 4) * 8 + (lane & 7)) * X::kRow + i +
                               (lane >> 3 & 1) * 8);
          mma(d[2 * J], a, b[0], b[1]), mma(d[2 * J + 1], a, b[2], b[3]);
        }
    }
  }
  __syncthreads();
  float *L = reinterpret_cast<float*>(shared_raw + X::kL), *A = reinterpret_cast<float*>(shared_raw + X::kA);
#pragma unroll
  for (int round = 0; round < kRounds; ++round) {
    const int task = warp + round * kWarps, T = task >> 1;
    const bool keys = task & 1;
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = T * kBlock + lane / 4 + 8 * half, column = 8 * n + 2 * (lane & 3);
        float x[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          x[e] = found[round][n][2 * half + e];
          const int r = row - T * kBlock, j = column + e - T * kBlock;
          if (!Dense && n / 2 == T) {
            x[e] = diagonal[(T * kBlock + j) * 32 + r + (keys ? 0 : 16)];
          }
          if (column + e >= row) x[e] = 0;
        }
        if (keys)
          *reinterpret_cast<float2*>(L + row * X::kInverse + column) =
              make_float2(x[0] * beta_s[row], x[1] * beta_s[row]);
        else
          *reinterpret_cast<uint32_t*>(reinterpret_cast<bf16*>(record + R::kPairs) + swizzle(row, column)) =
              pack(x[0], x[1]);
      }
  }
  __syncthreads();
  invert<D / 16>(L, A, reinterpret_cast<float*>(shared_raw + X::kT));
  for (int x = threadIdx.x; x < kChunk * 8; x += 2 * D) {
    const int row = x / 8, column = x % 8 * 8;
    uint32_t out[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int j = column + 2 * e;
      out[e] = pack(j < row ? A[row * X::kInverse + j] * beta_s[j] : 0.f,
                    j + 1 < row ? A[row * X::kInverse + j + 1] * beta_s[j + 1] : 0.f);
    }
    *reinterpret_cast<uint4*>(reinterpret_cast<bf16*>(record + R::kSolve) + swizzle(row, column)) =
        make_uint4(out[0], out[1], out[2], out[3]);
  }
}

template <int D, bool Dense>
cudaError_t launch(const Problem& p, const Chunks& c, cudaStream_t stream) {
  const int size = Shared<D>::size(Dense);
  const int64_t blocks = chunk_bound(p) * p.heads;
  cudaFuncSetAttribute(prepare_kernel<D, Dense>, cudaFuncAttributeMaxDynamicSharedMemorySize, size);
  if (blocks) prepare_kernel<D, Dense><<<unsigned(blocks), 2 * D, size, stream>>>(p, c.records);
  return cudaGetLastError();
}

}  // namespace

int64_t record_bytes(int64_t D) { return D == 128 ? Record<128>::kSize : Record<64>::kSize; }

cudaError_t chunk_prepare(const Problem& p, bool dense, const Chunks& c, cudaStream_t stream) {
  if (p.K == 128) return dense ? launch<128, true>(p, c, stream) : launch<128, false>(p, c, stream);
  return dense ? launch<64, true>(p, c, stream) : launch<64, false>(p, c, stream);
}

}  // namespace kda::cuda
