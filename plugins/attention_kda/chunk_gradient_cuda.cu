// chunk_gradient_cuda.cu: what of the backward does not depend on other chunks (chunk_cuda.h), for every chunk and head at
// once, from the states S and dS on its two sides, N and dV. One block a chunk, head and 64 channels of the keys. With G, anchors and sub-blocks as in
// chunk_prepare_cuda.cu, and w_rj = exp(G_r - G_j):
//   dP = dO N^T (j <= r);  dM = -dV N^T (j < r);  dbeta = rowsum(dV N) / beta^2
//   into q:           c_r dO_r S       + sum_{j<r} dP_rj k_j w_rj      (times scale; + scale dP_rr k_r)
//   into k as a row:  -c_r dV_r S      + sum_{j<r} dM_rj k_j w_rj
//   as a column:      exp(G_last - G_j) N_j dS + sum_{r>j} w_rj (dP_rj scale q_r + dM_rj k_r)   (+ dP_jj scale q_j)
// dg_r is the sum of all that crosses token r, every term with its decay: c_last rowsum(S dS), what rows < r give to the state
// that leaves, and from the end of the chunk the running sum of q into_q + k (into_row - into_column). The diagonal of P would
// cancel in it, and leave rounding larger than a fierce decay's dg.
#include "chunk_cuda.cuh"

namespace kda::cuda {
namespace {

constexpr int kBlocks = kChunk / kBlock;
constexpr int kPrefixRows = kBlock * kBlocks * (kBlocks + 1) / 2;
__device__ constexpr int prefix_row(int I) { return kBlock * I * (I + 1) / 2; }
constexpr int kPairRow = kChunk + 8;

constexpr int kWidth = 64, kThreads = 4 * kWidth;  // channels of a block; D values

template <int D>
struct Shared {                            // two blocks fit into a multiprocessor
  static constexpr int kRow = kWidth + 8;  // elements; rows start in different banks
  static constexpr int kRows = kChunk * kRow * 2, kValues = kChunk * D * 2, kMatrix = D * kWidth * 2;
  static constexpr int kFloats = kChunk * kWidth * 4;
  // First the products with states, of tiles as wgmma reads them,
  static constexpr int kDo = 0, kDv = kDo + kValues, kN = kDv + kValues, kS = kN + kValues, kDs = kS + kMatrix;
  // then those inside the chunk: rows of k and of scale q times exp(G - anchor), and of k times exp(anchor - G),
  static constexpr int kQ = 0, kK = kRows, kG = 2 * kRows, kWork = kG + kFloats;
  static constexpr int kKup = kWork, kQup = kKup + kRows, kDown = kQup + kRows,
                       kDownEnd = kDown + kPrefixRows * kRow * 2;
  static constexpr int kDp = kDs + kMatrix > kDownEnd ? kDs + kMatrix : kDownEnd, kDm = kDp + kChunk * kPairRow * 2;
  // then what has been summed up of each gradient.
  static constexpr int kSums = kWork;
  static constexpr int kDmEnd = kDm + kChunk * kPairRow * 2, kSumsEnd = kSums + 4 * kFloats;
  static constexpr int kTotals = kDmEnd > kSumsEnd ? kDmEnd : kSumsEnd, kTable = kBlocks * kWidth * 4;
  static constexpr int kEnter = kTotals + kTable, kLeave = kEnter + kTable, kTowards = kLeave + kTable;
  static constexpr int kParts = kTowards;                                   // float [8, kWidth], before kTowards
  static constexpr int kBeta = kTowards + 10 * kWidth * 4, kCross = kBeta;  // float [64]: first one, then the other
  static constexpr int kOwn = kBeta + kChunk * 4;
  static constexpr int kMiddles = kOwn + kChunk * 4;   // dense
  static constexpr int kDiagonal = kOwn + kChunk * 4;  // not dense: dP and dM, bf16, of kTriangle pairs a sub-block
  static constexpr int kTriangle = kBlock * (kBlock - 1) / 2;
  static constexpr int size(bool dense) { return kOwn + kChunk * 4 + (dense ? kTable : kBlocks * kTriangle * 4); }
};
// Number of the pair of sub-blocks J <= I.
__device__ constexpr int pair_of(int J, int I) { return I * (I + 1) / 2 + J; }

__device__ inline float at(const bf16* x) { return __bfloat162float(*x); }

template <int D, bool Dense>
__global__ void __launch_bounds__(kThreads, 2) gradient_kernel(Problem p, Chunks chunks) {
  using X = Shared<D>;
  constexpr int kRow = X::kRow;
  extern __shared__ __align__(1024) unsigned char shared_raw[];
  auto halves = [&](int offset) { return reinterpret_cast<bf16*>(shared_raw + offset); };
  auto floats = [&](int offset) { return reinterpret_cast<float*>(shared_raw + offset); };
  const int slice = blockIdx.x % (D / kWidth);
  const int64_t pair = blockIdx.x / (D / kWidth), number = pair / p.heads, h = pair % p.heads;
  const Place place = place_of(p, number);
  if (place.n == 0) return;
  const int n = place.n, thread = threadIdx.x, warp = thread >> 5, lane = thread & 31;
  const int64_t values = (place.t * p.heads + h) * D, first = values + slice * kWidth, step = p.heads * D;

  // ---- operands to shared memory; rows past the document's end are zero
  __shared__ uint64_t arrived;
  if (thread == 0) {
    barrier_init(&arrived, 1);
    barrier_init_done();
    barrier_expect(&arrived, 2 * X::kMatrix);
    const int64_t at = (pair * D + slice * kWidth) * D;
    bulk_copy(shared_raw + X::kS, static_cast<const bf16*>(chunks.states) + at, X::kMatrix, &arrived);
    bulk_copy(shared_raw + X::kDs, static_cast<const bf16*>(chunks.dstates) + at, X::kMatrix, &arrived);
  }
  auto copy_tiles = [&](const void* from, int to) {  // [64, D]
#pragma unroll
    for (int x = thread; x < kChunk * D / 8; x += kThreads) {
      const int r = x / (D / 8), c = x % (D / 8) * 8;
      const bool in = r < n && from;
      copy16(halves(to) + c / 64 * kChunk * 64 + swizzle(r, c % 64),
             in ? static_cast<const bf16*>(from) + values + r * step + c : p.q, in);
    }
  };
  copy_tiles(p.d_o, X::kDo), copy_tiles(chunks.dvalues, X::kDv), copy_tiles(chunks.values, X::kN);
  copy_commit();
  if (thread < kChunk)
    floats(X::kBeta)[thread] = thread < n ? 1 / strength(p.beta[(place.t + thread) * p.heads + h]) : 1.f;
  if (thread / 4 < n) {  // of what is copied later
    const int64_t row = first + thread / 4 * step;
    const void* later[4] = {static_cast<const bf16*>(p.q) + row, static_cast<const bf16*>(p.k) + row, p.g + row,
                            p.g + row + 32};
    prefetch(thread % 4 == 0 ? later[0] : thread % 4 == 1 ? later[1] : thread % 4 == 2 ? later[2] : later[3]);
  }
  copy_wait<0>();
  fence_async();
  __syncthreads();
  barrier_wait(&arrived, 0);

  // ---- products with the states: a warp has rows of sub-block I, 32 columns
  const int I = warp & 3, c0 = warp >> 2, column0 = 32 * c0, top = I * kBlock;
  float into_q[4][4] = {}, into_k[4][4] = {}, rest[4][4] = {};  // into_k is negative here
  {
    float dp[4][4] = {}, dm[4][4] = {};  // columns 32 c0 on of dP and of -dM
    pin(into_q), pin(into_k), pin(rest), pin(dp), pin(dm);
    wgmma_begin();
#pragma unroll
    for (int v = 0; v < D; v += 16) {
      const int tile = v / 64 * kChunk * 128 + v % 64 * 2;  // bytes
      const uint64_t o = across(shared_raw + X::kDo + tile), d = across(shared_raw + X::kDv + tile),
                     w = across(shared_raw + X::kN + tile), w_rows = across(shared_raw + X::kN + tile + c0 * 32 * 128);
      const uint64_t s = along(shared_raw + X::kS + v * 128 + c0 * 64, 0),
                     ds = along(shared_raw + X::kDs + v * 128 + c0 * 64, 0);
      wgmma<true>(into_q, o, s), wgmma<true>(into_k, d, s), wgmma<true>(rest, w, ds);
      wgmma<false>(dp, o, w_rows), wgmma<false>(dm, d, w_rows);
    }
    wgmma_commit();
    wgmma_wait();
    pin(into_q), pin(into_k), pin(rest), pin(dp), pin(dm);
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = top + (lane >> 2) + 8 * half, column = column0 + 8 * j + 2 * (lane & 3);
        float x[2], y[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const bool below = column + e < row;
          if (column + e == row) floats(X::kOwn)[row] = dp[j][2 * half + e];
          x[e] = below ? dp[j][2 * half + e] : 0.f, y[e] = below ? -dm[j][2 * half + e] : 0.f;
          if (!Dense && below && column / kBlock == I) {
            const int r = row - top;
            reinterpret_cast<uint32_t*>(
                shared_raw + X::kDiagonal)[I * X::kTriangle + r * (r - 1) / 2 + column % kBlock + e] = pack(x[e], y[e]);
          }
        }
        *reinterpret_cast<uint32_t*>(halves(X::kDp) + row * kPairRow + column) = pack(x[0], x[1]);
        *reinterpret_cast<uint32_t*>(halves(X::kDm) + row * kPairRow + column) = pack(y[0], y[1]);
      }
  }
  if (p.dbeta && slice == 0) {
    constexpr int kLanes = kThreads / kChunk;  // of a row
    const int r = thread / kLanes;
    const float inverse = floats(X::kBeta)[r];
    float sum = 0;
#pragma unroll
    for (int c = thread % kLanes * 8; c < D; c += kLanes * 8) {
      const int at = c / 64 * kChunk * 64 + swizzle(r, c % 64);
      const uint4 x4 = *reinterpret_cast<const uint4*>(halves(X::kDv) + at),
                  y4 = *reinterpret_cast<const uint4*>(halves(X::kN) + at);
      const uint32_t x8[4] = {x4.x, x4.y, x4.z, x4.w}, y8[4] = {y4.x, y4.y, y4.z, y4.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 x = unpack(x8[i]), y = unpack(y8[i]);
        sum += x.x * inverse * (y.x * inverse) + x.y * inverse * (y.y * inverse);
      }
    }
#pragma unroll
    for (int m = kLanes / 2; m >= 1; m /= 2) sum += __shfl_xor_sync(~0u, sum, m);
    if (thread % kLanes == 0 && r < n) p.dbeta[(place.t + r) * p.heads + h] = sum;
  }
  {
    const int c = lane * 2;  // a warp has an eighth of the values
    float2 sum = make_float2(0, 0);
#pragma unroll 4
    for (int v = warp * (D / 8); v < (warp + 1) * (D / 8); ++v) {
      const float2 x = unpack(*reinterpret_cast<const uint32_t*>(halves(X::kS) + swizzle(v, c)));
      const float2 y = unpack(*reinterpret_cast<const uint32_t*>(halves(X::kDs) + swizzle(v, c)));
      sum.x += x.x * y.x, sum.y += x.y * y.y;
    }
    *reinterpret_cast<float2*>(floats(X::kParts) + warp * kWidth + c) = sum;
  }
  __syncthreads();
  for (int x = thread; x < kChunk * kWidth / 8; x += kThreads) {
    const int r = x / (kWidth / 8), c = x % (kWidth / 8) * 8;
    copy16(halves(X::kQ) + r * kRow + c, r < n ? static_cast<const bf16*>(p.q) + first + r * step + c : p.q, r < n);
    copy16(halves(X::kK) + r * kRow + c, r < n ? static_cast<const bf16*>(p.k) + first + r * step + c : p.k, r < n);
  }
  for (int x = thread; x < kChunk * kWidth / 4; x += kThreads) {
    const int r = x / (kWidth / 4), c = x % (kWidth / 4) * 4;
    copy16(floats(X::kG) + r * kWidth + c, r < n ? p.g + first + r * step + c : p.g, r < n);
  }
  copy_commit();
  copy_wait<0>();
  __syncthreads();

  // ---- decays of sub-block B, one channel a thread
  const int B = thread / kWidth, channel = thread % kWidth;
  float *g = floats(X::kG) + B * kBlock * kWidth + channel, total = 0, middle = 0;
#pragma unroll
  for (int r = 0; r < kBlock; ++r) {
    const float x = g[r * kWidth] * kLog2e;
    g[r * kWidth] = x;
    total += x;
    if (Dense && r == kBlock / 2 - 1) middle = total;
  }
  floats(X::kTotals)[B * kWidth + channel] = total;
  if (Dense) floats(X::kMiddles)[B * kWidth + channel] = middle;
  __syncthreads();
  float across = 0, after = 0;  // across: S dS of this channel
  if (B == 0)
    for (int part = 0; part < 8; ++part) across += floats(X::kParts)[part * kWidth + channel];
  __syncthreads();
  float before = middle, towards[kBlocks];
#pragma unroll
  for (int J = 0; J < kBlocks; ++J) {
    const float t = floats(X::kTotals)[J * kWidth + channel];
    if (J < B) before += t;
    if (J > B) {
      towards[J] = power2(after + (Dense ? floats(X::kMiddles)[J * kWidth + channel] : 0.f));
      floats(X::kTowards)[pair_of(B, J) * kWidth + channel] = towards[J];
      after += t;
    }
  }
  if (Dense) floats(X::kTowards)[pair_of(B, B) * kWidth + channel] = power2(middle - total);
  floats(X::kEnter)[B * kWidth + channel] = power2(before);
  floats(X::kLeave)[B * kWidth + channel] = power2(after);
  if (B == 0) floats(X::kCross)[channel] = across * power2(total + after);
  {
    const bf16 *q = halves(X::kQ) + B * kBlock * kRow + channel, *k = halves(X::kK) + B * kBlock * kRow + channel;
    float G = -middle, left = 0;
#pragma unroll
    for (int r = 0; r < kBlock; ++r) {
      const int row = B * kBlock + r;
      const float kr = at(k + r * kRow);
      G += g[r * kWidth];
      const float up = power2(G);
      halves(X::kKup)[row * kRow + channel] = __float2bfloat16_rn(kr * up);
      halves(X::kQup)[row * kRow + channel] = __float2bfloat16_rn(at(q + r * kRow) * p.scale * up);
      if (Dense) halves(X::kDown)[(prefix_row(B) + row) * kRow + channel] = __float2bfloat16_rn(kr * power2(-G));
    }
#pragma unroll
    for (int r = kBlock - 1; r >= 0; --r) {
      const float down = at(k + r * kRow) * power2(left);
      left += g[r * kWidth];
#pragma unroll
      for (int J = 1; J < kBlocks; ++J)
        if (J > B)
          halves(X::kDown)[(prefix_row(J) + B * kBlock + r) * kRow + channel] = __float2bfloat16_rn(down * towards[J]);
    }
  }
  __syncthreads();

  // ---- products inside the chunk
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float2 e =
        *reinterpret_cast<const float2*>(floats(X::kEnter) + I * kWidth + column0 + 8 * j + 2 * (lane & 3));
#pragma unroll
    for (int m = 0; m < 4; ++m) into_q[j][m] *= m & 1 ? e.y : e.x, into_k[j][m] *= m & 1 ? -e.y : -e.x;
  }
  for (int J = 0; J < I + (Dense ? 1 : 0); ++J) {
    uint32_t o[4], d[4], b[4];
    const int a_at = (top + (lane & 15)) * kPairRow + J * kBlock + (lane >> 4) * 8;
    load_matrices(o, halves(X::kDp) + a_at), load_matrices(d, halves(X::kDm) + a_at);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      load_transposed(b, halves(X::kDown) + (prefix_row(I) + J * kBlock + (lane >> 3 & 1) * 8 + (lane & 7)) * kRow +
                             column0 + 16 * j + (lane >> 4) * 8);
      mma(into_q[2 * j], o, b[0], b[1]), mma(into_q[2 * j + 1], o, b[2], b[3]);
      mma(into_k[2 * j], d, b[0], b[1]), mma(into_k[2 * j + 1], d, b[2], b[3]);
    }
  }
  // What crosses tokens inside the chunk. Row and column sums cancel for tokens outside of a pair only if both are of the very
  // products that were rounded: of rows in shared memory, not of their exact values.
  float columns[4][4] = {}, crosses[4][4];
  auto row_at = [&](int offset, int row, int j) {
    return unpack(*reinterpret_cast<const uint32_t*>(halves(offset) + (row + (lane >> 2)) * kRow + column0 + 8 * j +
                                                     2 * (lane & 3)));
  };
#pragma unroll
  for (int j = 0; j < 4; ++j)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 a = row_at(X::kQup, top + 8 * half, j), b = row_at(X::kKup, top + 8 * half, j);
      crosses[j][2 * half] = a.x * into_q[j][2 * half] + b.x * into_k[j][2 * half];
      crosses[j][2 * half + 1] = a.y * into_q[j][2 * half + 1] + b.y * into_k[j][2 * half + 1];
    }
  for (int J = I + (Dense ? 0 : 1); J < kBlocks; ++J) {
    uint32_t o[4], d[4], b[4];
    float z[4][4] = {};
    const int a_at = (J * kBlock + (lane >> 4) * 8 + (lane & 7)) * kPairRow + top + (lane >> 3 & 1) * 8;
    load_transposed(o, halves(X::kDp) + a_at), load_transposed(d, halves(X::kDm) + a_at);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int b_at = (J * kBlock + (lane >> 3 & 1) * 8 + (lane & 7)) * kRow + column0 + 16 * j + (lane >> 4) * 8;
      load_transposed(b, halves(X::kQup) + b_at);
      mma(z[2 * j], o, b[0], b[1]), mma(z[2 * j + 1], o, b[2], b[3]);
      load_transposed(b, halves(X::kKup) + b_at);
      mma(z[2 * j], d, b[0], b[1]), mma(z[2 * j + 1], d, b[2], b[3]);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 e = *reinterpret_cast<const float2*>(floats(X::kTowards) + pair_of(I, J) * kWidth + column0 + 8 * j +
                                                        2 * (lane & 3));
#pragma unroll
      for (int m = 0; m < 4; ++m) columns[j][m] += z[j][m] * (m & 1 ? e.y : e.x);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 k = row_at(X::kDown, prefix_row(J) + top + 8 * half, j);
        crosses[j][2 * half] -= k.x * z[j][2 * half], crosses[j][2 * half + 1] -= k.y * z[j][2 * half + 1];
      }
    }
  }
  __syncthreads();
  {
    float* sums = floats(X::kSums) + (top + (lane >> 2)) * kWidth + column0 + 2 * (lane & 3);
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float* to = sums + half * 8 * kWidth + 8 * j;
        *reinterpret_cast<float2*>(to) = make_float2(into_q[j][2 * half], into_q[j][2 * half + 1]);
        *reinterpret_cast<float2*>(to + kChunk * kWidth) = make_float2(into_k[j][2 * half], into_k[j][2 * half + 1]);
        *reinterpret_cast<float2*>(to + 2 * kChunk * kWidth) =
            make_float2(columns[j][2 * half], columns[j][2 * half + 1]);
        *reinterpret_cast<float2*>(to + 3 * kChunk * kWidth) = make_float2(rest[j][2 * half], rest[j][2 * half + 1]);
      }
  }
  __syncthreads();

  // ---- sub-block B, one channel a thread: decays, pairs of the diagonal block, and sums along the tokens
  const bf16 *q = halves(X::kQ) + B * kBlock * kRow + channel, *k = halves(X::kK) + B * kBlock * kRow + channel;
  float* sums = floats(X::kSums) + B * kBlock * kWidth + channel;
  float row_q[kBlock] = {}, row_k[kBlock] = {}, column_k[kBlock] = {}, crossing[kBlock] = {};
  if constexpr (!Dense) {
    const uint32_t* pairs = reinterpret_cast<const uint32_t*>(shared_raw + X::kDiagonal) + B * X::kTriangle;
    float a[kBlock], qs[kBlock], ks[kBlock];
#pragma unroll
    for (int r = 0; r < kBlock; ++r)
      a[r] = power2(g[r * kWidth]), qs[r] = at(q + r * kRow) * p.scale, ks[r] = at(k + r * kRow);
#pragma unroll
    for (int j = 0; j < kBlock - 1; ++j) {
      float w = 1;
#pragma unroll
      for (int r = j + 1; r < kBlock; ++r) {
        w *= a[r];
        const float2 x = unpack(pairs[r * (r - 1) / 2 + j]);
        const float kw = ks[j] * w;
        row_q[r] += x.x * kw, row_k[r] += x.y * kw;
        column_k[j] += w * (x.x * qs[r] + x.y * ks[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < kBlock; ++r) crossing[r] = qs[r] * row_q[r] + ks[r] * (row_k[r] - column_k[r]);
  }
  {
    float G = -middle, left = 0;
#pragma unroll
    for (int r = 0; r < kBlock; ++r) {
      G += g[r * kWidth];
      const float up = power2(G);
      row_q[r] += sums[r * kWidth] * up, row_k[r] += sums[(kChunk + r) * kWidth] * up;
    }
    const float leave = floats(X::kLeave)[B * kWidth + channel];
#pragma unroll
    for (int r = kBlock - 1; r >= 0; --r) {
      const float down = power2(left);
      left += g[r * kWidth];
      row_k[r] += column_k[r] + sums[(2 * kChunk + r) * kWidth] * down;
      column_k[r] = sums[(3 * kChunk + r) * kWidth] * down * leave;  // through the state that leaves
    }
  }
  float given = 0;
#pragma unroll
  for (int r = 0; r < kBlock; ++r) {
    const int row = B * kBlock + r;
    const float kr = at(k + r * kRow), own = floats(X::kOwn)[row];
    const int64_t to = first + row * step + channel;
    if (row < n) {
      if (p.dq) static_cast<bf16*>(p.dq)[to] = __float2bfloat16_rn(p.scale * (row_q[r] + own * kr));
      if (p.dk)
        static_cast<bf16*>(p.dk)[to] = __float2bfloat16_rn(row_k[r] + column_k[r] + own * at(q + r * kRow) * p.scale);
    }
    const float x = kr * column_k[r];  // crosses every token after r
    column_k[r] = given;
    given += x;
  }
  if (!p.dg) return;
  __syncthreads();
#pragma unroll
  for (int j = 0; j < 4; ++j)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<float2*>(floats(X::kSums) + (top + (lane >> 2) + 8 * half) * kWidth + column0 + 8 * j +
                                 2 * (lane & 3)) = make_float2(crosses[j][2 * half], crosses[j][2 * half + 1]);
  __syncthreads();
  float total_here = 0;
#pragma unroll
  for (int r = kBlock - 1; r >= 0; --r) total_here += crossing[r] + sums[r * kWidth], crossing[r] = total_here;
  floats(X::kTotals)[B * kWidth + channel] = total_here, floats(X::kEnter)[B * kWidth + channel] = given;
  __syncthreads();
  float later = floats(X::kCross)[channel];
#pragma unroll
  for (int J = 0; J < kBlocks; ++J) {
    if (J > B) later += floats(X::kTotals)[J * kWidth + channel];
    if (J < B) later += floats(X::kEnter)[J * kWidth + channel];
  }
#pragma unroll
  for (int r = 0; r < kBlock; ++r)
    if (B * kBlock + r < n) p.dg[first + (B * kBlock + r) * step + channel] = later + crossing[r] + column_k[r];
}

template <int D, bool Dense>
cudaError_t launch(const Problem& p, const Chunks& c, cudaStream_t stream) {
  constexpr int size = Shared<D>::size(Dense);
  static_assert(size <= 113 * 1024);  // half of a multiprocessor's
  const int64_t blocks = chunk_bound(p) * p.heads * (D / kWidth);
  cudaFuncSetAttribute(gradient_kernel<D, Dense>, cudaFuncAttributeMaxDynamicSharedMemorySize, size);
  if (blocks) gradient_kernel<D, Dense><<<unsigned(blocks), kThreads, size, stream>>>(p, c);
  return cudaGetLastError();
}

}  // namespace

cudaError_t chunk_gradient(const Problem& p, bool dense, const Chunks& c, cudaStream_t stream) {
  if (p.K == 128) return dense ? launch<128, true>(p, c, stream) : launch<128, false>(p, c, stream);
  return dense ? launch<64, true>(p, c, stream) : launch<64, false>(p, c, stream);
}

}  // namespace kda::cuda
