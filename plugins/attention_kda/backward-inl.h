// backward-inl.h: the reverse of one chunk. Notation of chunk-inl.h; dX is the gradient of X; S enters the chunk,
// dS is the gradient of the state that leaves. With R = [do; -beta D], where (I + diag(beta) M)^T D = dU and dU = P^T
// do + k_rest^T dS:
//   [dP; dM] = R U^T (on and below, or below the diagonal);   [dQ+; dK+] = R S^T;   d(k_rest) = U dS^T
//   dv = beta D;   dbeta = rowsum(D E);   dS <- c_last dS + [Q+; K+]^T R
// Inside the chunk, with w_rj = exp(G_r - G_j), and apart from the diagonal of P, whose w is one:
//   into q:  sum_{j<r} dP_rj k_j w_rj      into k as a row: sum_{j<r} dM_rj k_j w_rj
//   into k as a column: sum_{r>j} w_rj (dP_rj scale q_r + dM_rj k_r)
// dg_r is the sum of all that crosses token r, every term with its decay: what the entering state gives to rows >= r
// and to the leaving one, what rows < r give to the leaving one, and inside the chunk pairs j < r <= r'. The last come
// in two ways. Dense: the running sum from the end of q into_q + k (into_row - into_column), where pairs that do not
// cross r cancel up to rounding. That rounding is as large as a fierce decay's dg, and the gate multiplies it by g; so
// else only crossing pairs are summed: k_j w_rj h_rj, where h_rj = y_rj + exp(g_{r+1}) h_{r+1,j} from the end, with
// y_rj = dP_rj scale q_r + dM_rj k_r (and exp(g_{j+1}) h_{j+1,j} goes into k_j as a column). The diagonal would cancel
// in both, and is left out.
#if defined(KITBASH_KDA_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KITBASH_KDA_BACKWARD_INL_H_
#undef KITBASH_KDA_BACKWARD_INL_H_
#else
#define KITBASH_KDA_BACKWARD_INL_H_
#endif

#include "chunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kda {
namespace HWY_NAMESPACE {

template <class T>
struct BackwardData {
  T* R;        // [32, Vp]   do, then -beta D
  T* Rt;       // [Vp, 32]
  T* Ut;       // [Vp, 16]
  T* dU;       // [16, Vp]   then D
  T* dpm;      // [32, 16]   dP, then dM
  T* dqk_in;   // [Kp, 32]   (dQ+, dK+) transposed
  T* dk_rest;  // [Kp, 16]   transposed
  T* row;      // [32, Kp]   inside the chunk: into scale q, then into k as a row
  T* column;   // [16, Kp]   into k as a column
  T* inside;   // [16, Kp]   into g, of the pairs that cross a token (not dense)
  T* own;      // [16]       the diagonal of dP
  T* dG;       // [Kp]       c_last rowsum(S dS)

  static int64_t size(int64_t K, int64_t V) {
    return (32 + 32 + 16 + 16) * padded(V) + 33 * 16 + (32 + 16 + 32 + 16 + 16 + 1) * padded(K);
  }
  T* place(T* w, int64_t K, int64_t V) {
    const int64_t Kp = padded(K), Vp = padded(V);
    auto take = [&w](int64_t n) {
      T* at = w;
      w += n;
      return at;
    };
    R = take(32 * Vp), Rt = take(32 * Vp), Ut = take(16 * Vp), dU = take(16 * Vp), dpm = take(32 * 16),
    dqk_in = take(32 * Kp);
    dk_rest = take(16 * Kp), row = take(32 * Kp), column = take(16 * Kp), inside = take(16 * Kp), own = take(16);
    dG = take(Kp);
    return w;
  }
};

// D from dU by back substitution, -beta D into R; returns dbeta in `dbeta` [16].
template <class T>
void solve_back(const Problem<T>& p, const ChunkData<T>& x, const BackwardData<T>& y, T* dbeta) {
  constexpr int64_t N = lanes<T>();
  const Tag<T> d;
  const int64_t Vp = padded(p.V);
  const T* M = x.pm + kChunk * kChunk;
  T* minus = y.R + kChunk * Vp;
  for (int64_t v = 0; v < Vp; v += N) {
    Vec<T> D[kChunk];
#pragma GCC unroll 16
    for (int r = 0; r < kChunk; ++r) D[r] = hn::LoadU(d, y.dU + r * Vp + v);
#pragma GCC unroll 16
    for (int j = kChunk - 1; j >= 0; --j) {
      const auto down = hn::Mul(D[j], hn::Set(d, -x.beta[j]));
      hn::StoreU(D[j], d, y.dU + j * Vp + v), hn::StoreU(down, d, minus + j * Vp + v);
#pragma GCC unroll 16
      for (int r = 0; r < j; ++r) D[r] = hn::MulAdd(down, hn::Set(d, M[j * kChunk + r]), D[r]);
    }
  }
  for (int64_t r = 0; r < kChunk; ++r) {
    auto sum = hn::Zero(d);
    for (int64_t v = 0; v < Vp; v += N)
      sum = hn::MulAdd(hn::LoadU(d, y.dU + r * Vp + v), hn::LoadU(d, x.E + r * Vp + v), sum);
    dbeta[r] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
}

// row, column and inside, weights by running products.
template <class T>
void pairs_back(const Problem<T>& p, int64_t n, const ChunkData<T>& x, const BackwardData<T>& y) {
  const Tag<T> d;
  const int64_t Kp = padded(p.K);
  const T *dP = y.dpm, *dM = y.dpm + kChunk * kChunk;
  for (int64_t i = 0; i < Kp; i += lanes<T>()) {
    const T *q = x.qk + i, *k = q + kChunk * Kp, *a = x.a + i;
    T *into_q = y.row + i, *into_k = into_q + kChunk * Kp;
    hn::StoreU(hn::Zero(d), d, into_q), hn::StoreU(hn::Zero(d), d, into_k);
    Vec<T> kw[kChunk], inside[kChunk];  // kw: k_j w_rj
    inside[0] = hn::Zero(d);
    for (int64_t j = 0; j < n; ++j) {
      kw[j] = hn::LoadU(d, k + j * Kp);
      for (int64_t r = j + 1; r < n; ++r) {
        const auto p_rj = hn::Set(d, dP[r * kChunk + j]), m_rj = hn::Set(d, dM[r * kChunk + j]);
        kw[r] = hn::Mul(kw[r - 1], hn::LoadU(d, a + r * Kp));
        T *at_q = into_q + r * Kp, *at_k = into_k + r * Kp;
        hn::StoreU(j ? hn::MulAdd(p_rj, kw[r], hn::LoadU(d, at_q)) : hn::Mul(p_rj, kw[r]), d, at_q);
        hn::StoreU(j ? hn::MulAdd(m_rj, kw[r], hn::LoadU(d, at_k)) : hn::Mul(m_rj, kw[r]), d, at_k);
      }
      auto later = hn::Zero(d);  // exp(g_{r+1}) h_{r+1,j}
      for (int64_t r = n - 1; r > j; --r) {
        const auto p_rj = hn::Set(d, dP[r * kChunk + j]), m_rj = hn::Set(d, dM[r * kChunk + j]);
        const auto y_rj = hn::MulAdd(p_rj, hn::LoadU(d, q + r * Kp), hn::Mul(m_rj, hn::LoadU(d, k + r * Kp)));
        const auto h = hn::Add(y_rj, later);
        inside[r] = j ? hn::MulAdd(kw[r], h, inside[r]) : hn::Mul(kw[r], h);
        later = hn::Mul(h, hn::LoadU(d, a + r * Kp));
      }
      hn::StoreU(later, d, y.column + j * Kp + i);
    }
    for (int64_t r = 0; r < n; ++r) hn::StoreU(inside[r], d, y.inside + r * Kp + i);
  }
}

// row and column as dense products. dpm must be zero on and above the diagonals.
template <class T>
void dense_back(const Problem<T>& p, const ChunkData<T>& x, const BackwardData<T>& y) {
  const Tag<T> d;
  const int64_t Kp = padded(p.K);
  product<Start::kZero>(2 * kChunk, Kp, kChunk, y.dpm, kChunk, 1, x.k_inv, Kp, y.row, Kp);
  product<Start::kZero>(kChunk, Kp, 2 * kChunk, y.dpm, 1, kChunk, x.qk_mid, Kp, y.column, Kp);
  for (int64_t at = 0; at < kChunk * Kp; at += lanes<T>()) {
    const auto up = hn::LoadU(d, x.up + at);
    for (T* z : {y.row + at, y.row + kChunk * Kp + at}) hn::StoreU(hn::Mul(hn::LoadU(d, z), up), d, z);
    hn::StoreU(hn::Mul(hn::LoadU(d, y.column + at), hn::LoadU(d, x.down + at)), d, y.column + at);
  }
}

// Adds what came through the state to row and column, and writes dq, dk and dg of rows t .. t + n.
template <bool Dense, class T>
void finish(const Problem<T>& p, int64_t head, int64_t t, int64_t n, const ChunkData<T>& x, const BackwardData<T>& y) {
  constexpr int64_t N = lanes<T>();
  const Tag<T> d;
  const int64_t Kp = padded(p.K), stride = p.heads * p.K;
  const auto scale = hn::Set(d, p.scale);
  HWY_ALIGN T dQ[16 * 16], dK[16 * 16], dk_rest[16 * 16];  // [token, channel]
  for (int64_t group = 0; group < Kp; group += 16) {
    transpose(y.dqk_in + group * 32, 32, 16, dQ);
    transpose(y.dqk_in + group * 32 + 16, 32, 16, dK);
    transpose(y.dk_rest + group * 16, 16, 16, dk_rest);
    for (int64_t i = group; i < group + 16 && i < p.K; i += N) {
      HWY_ALIGN T leaving[kChunk * N];  // what rows before this one give to the leaving state
      auto given = hn::Zero(d);
      for (int64_t r = 0; r < n; ++r) {
        const int64_t at = r * Kp + i;
        hn::Store(given, d, leaving + r * N);
        const auto k_rest = hn::Mul(hn::LoadU(d, x.qk + kChunk * Kp + at), hn::LoadU(d, x.rest + at));
        given = hn::MulAdd(k_rest, hn::Load(d, dk_rest + r * 16 + i - group), given);
      }
      auto crossing = hn::LoadU(d, y.dG + i);
      for (int64_t r = n - 1; r >= 0; --r) {
        const int64_t at = r * Kp + i, tile = r * 16 + i - group, out = p.key(t, head) + r * stride + i;
        const auto own = hn::Set(d, y.own[r]);
        const auto c = hn::LoadU(d, x.c + at), q = hn::LoadU(d, x.qk + at), k = hn::LoadU(d, x.qk + kChunk * Kp + at);
        const auto state_q = hn::Mul(c, hn::Load(d, dQ + tile)), state_k = hn::Mul(c, hn::Load(d, dK + tile));
        const auto dq = hn::Add(state_q, hn::LoadU(d, y.row + at));
        const auto row = hn::Add(state_k, hn::LoadU(d, y.row + kChunk * Kp + at)), column = hn::LoadU(d, y.column + at);
        auto dg = hn::Load(d, leaving + r * N);
        if constexpr (Dense) {
          crossing = hn::Add(crossing, hn::MulAdd(q, dq, hn::Mul(k, hn::Sub(row, column))));
        } else {
          crossing = hn::MulAdd(q, state_q, hn::MulAdd(k, state_k, crossing));
          dg = hn::Add(dg, hn::LoadU(d, y.inside + at));
        }
        dg = hn::Add(dg, crossing);
        const auto through_state = hn::Mul(hn::LoadU(d, x.rest + at), hn::Load(d, dk_rest + tile));
        if (p.dq) store_part(hn::Mul(hn::MulAdd(own, k, dq), scale), p.dq + out, p.K - i);
        if (p.dk) store_part(hn::Add(hn::Add(row, column), hn::MulAdd(own, q, through_state)), p.dk + out, p.K - i);
        if (p.dg) store_part(dg, p.dg + out, p.K - i);
      }
    }
  }
}

// Rows t .. t + n; dS [Kp, Vp] becomes the gradient of the state that enters.
template <bool Dense, class T>
void chunk_back(const Problem<T>& p, int64_t head, int64_t t, int64_t n, const T* S, T* dS, const ChunkData<T>& x,
                const BackwardData<T>& y) {
  constexpr int64_t N = lanes<T>();
  const Tag<T> d;
  const int64_t Kp = padded(p.K), Vp = padded(p.V);
  copy_in(p.d_o ? p.d_o + p.value(t, head) : nullptr, p.heads * p.V, p.d_o ? n : 0, p.V, y.R, kChunk, Vp);
  product<Start::kZero>(kChunk, Vp, p.K, x.k_rest, 1, kChunk, dS, Vp, y.dU, Vp);
  if (p.d_o) product<Start::kSelf>(kChunk, Vp, kChunk, x.pm, 1, kChunk, y.R, Vp, y.dU, Vp);
  T dbeta[kChunk];
  solve_back(p, x, y, dbeta);
  if (p.dbeta)
    for (int64_t r = 0; r < n; ++r) p.dbeta[(t + r) * p.heads + head] = dbeta[r];
  if (p.dv)
    for (int64_t r = 0; r < n; ++r)
      for (int64_t v = 0; v < p.V; v += N)
        store_part(hn::Neg(hn::LoadU(d, y.R + (kChunk + r) * Vp + v)), p.dv + p.value(t + r, head) + v, p.V - v);
  if (p.dq || p.dk || p.dg) {
    transpose(x.U, Vp, Vp, y.Ut);
    product<Start::kZero>(2 * kChunk, kChunk, p.V, y.R, Vp, 1, y.Ut, kChunk, y.dpm, kChunk);
    for (int64_t v = 0; v < Vp; v += N) {  // R^T, two blocks of sixteen columns side by side
      HWY_ALIGN T tile[2][16 * N];
      transpose_block(y.R + v, Vp, tile[0]), transpose_block(y.R + kChunk * Vp + v, Vp, tile[1]);
      for (int64_t c = 0; c < N; ++c)
        for (int half = 0; half < 2; ++half)
          for (int64_t r = 0; r < kChunk; r += N)
            hn::StoreU(hn::Load(d, tile[half] + c * kChunk + r), d, y.Rt + (v + c) * 32 + half * 16 + r);
    }
    product<Start::kZero>(Kp, 2 * kChunk, p.V, S, Vp, 1, y.Rt, 32, y.dqk_in, 32);
    product<Start::kZero>(Kp, kChunk, p.V, dS, Vp, 1, y.Ut, kChunk, y.dk_rest, kChunk);
    for (int64_t i = 0; i < Kp; ++i) {
      auto sum = hn::Zero(d);
      for (int64_t v = 0; v < Vp; v += N)
        sum = hn::MulAdd(hn::LoadU(d, S + i * Vp + v), hn::LoadU(d, dS + i * Vp + v), sum);
      y.dG[i] = x.c[(kChunk - 1) * Kp + i] * hn::GetLane(hn::SumOfLanes(d, sum));
    }
    for (int64_t r = 0; r < kChunk; ++r) y.own[r] = y.dpm[r * kChunk + r];
    if constexpr (Dense) {
      for (int64_t r = 0; r < kChunk; ++r)
        for (int64_t j = r; j < kChunk; ++j) y.dpm[r * kChunk + j] = y.dpm[(kChunk + r) * kChunk + j] = 0;
      dense_back(p, x, y);
    } else {
      pairs_back(p, n, x, y);
    }
    finish<Dense>(p, head, t, n, x, y);
  }
  product<Start::kScaledSelf>(Kp, Vp, 2 * kChunk, x.qk_in, 1, Kp, y.R, Vp, dS, Vp, x.c + (kChunk - 1) * Kp);
}

}  // namespace HWY_NAMESPACE
}  // namespace kda
HWY_AFTER_NAMESPACE();
#endif
