// chunk-inl.h: one chunk of sixteen tokens of one head, forward: what the output kernels and the backward sweep share.
// Notation of the chunkwise form (Kimi Linear report, eqs. 6-9): G the running sum of g inside the chunk, c = exp(G);
//   K+ = k c,  Q+ = scale q c,  M[r, j] = sum_i k_r k_j exp(G_r - G_j) (j < r),  P[r, j] likewise with scale q_r (j <=
//   r) E = v - K+ S - M (beta E)   errors of the delta rule, by forward substitution;   U = beta E o = Q+ S + P U;   S
//   <- c_last S + (k exp(G_last - G))^T U
// No factor above exceeds one. M and P come in two ways: dense, as one product of k c/c_mid and k c_mid/c, for decays
// of which sixteen stay above exp(-80); else pairs, whose weights exp(G_r - G_j) are running products of exp(g).
#if defined(KITBASH_KDA_CHUNK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KITBASH_KDA_CHUNK_INL_H_
#undef KITBASH_KDA_CHUNK_INL_H_
#else
#define KITBASH_KDA_CHUNK_INL_H_
#endif

#include "hwy/contrib/math/math-inl.h"
#include "problem.h"
#include "tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kda {
namespace HWY_NAMESPACE {

template <class T>
struct ChunkData {  // Kp, Vp: widths padded to sixteen
  T* qk;            // [32, Kp]   rows of scale q, then of k
  T* qk_in;         // [32, Kp]   Q+, then K+
  T* a;             // [16, Kp]   exp(g); dense: only row 0, c_last / c_mid
  T* qk_mid;        // [32, Kp]   qk c / c_mid                     (dense)
  T* k_inv;         // [16, Kp]   k c_mid / c                      (dense)
  T* up;            // [16, Kp]   c / c_mid                        (dense)
  T* down;          // [16, Kp]   c_mid / c                        (dense)
  T* c;             // [16, Kp]   exp(G)
  T* rest;          // [16, Kp]   exp(G_last - G)
  T* k_rest;        // [Kp, 16]   (k exp(G_last - G)) transposed
  T* k_side;        // [Kp, 16]   k, or k_inv, transposed
  T* pm;            // [32, 16]   P, then M; zero above the diagonal of P, undefined on and above that of M
  T* beta;          // [16]
  T* E;             // [16, Vp]
  T* U;             // [16, Vp]

  static int64_t size(int64_t K, int64_t V) {
    return (32 + 32 + 16 + 32 + 7 * 16) * padded(K) + 32 * 16 + 16 + 32 * padded(V);
  }
  T* place(T* w, int64_t K, int64_t V) {  // returns the end
    const int64_t Kp = padded(K), Vp = padded(V);
    auto take = [&w](int64_t n) {
      T* at = w;
      w += n;
      return at;
    };
    qk = take(32 * Kp), qk_in = take(32 * Kp), a = take(16 * Kp), qk_mid = take(32 * Kp), k_inv = take(16 * Kp),
    up = take(16 * Kp);
    down = take(16 * Kp), c = take(16 * Kp), rest = take(16 * Kp), k_rest = take(16 * Kp), k_side = take(16 * Kp);
    pm = take(32 * 16), beta = take(16), E = take(16 * Vp), U = take(16 * Vp);
    return w;
  }
};

// Asks for a line of each input from column i on, of rows t .. end: into the second cache level, since with 128 channels a
// chunk would fill the first.
HWY_INLINE void ask(const void* p) { __builtin_prefetch(p, 0, 2); }
template <class T>
inline constexpr int64_t kLine = 64 / int64_t(sizeof(T));
template <class T>
HWY_INLINE void ask_columns(const Problem<T>& p, int64_t head, int64_t t, int64_t end, int64_t i) {
  for (int64_t r = t; r < end; ++r) {
    const int64_t key = p.key(r, head) + i;
    if (i < p.K) ask(p.q + key), ask(p.k + key), ask(p.g + key);
    if (i < p.V) ask(p.v + p.value(r, head) + i);
  }
}
// All of rows t .. end, and the gradient that comes in.
template <class T>
HWY_INLINE void ask_rows(const Problem<T>& p, int64_t head, int64_t t, int64_t end) {
  for (int64_t i = 0; i < HWY_MAX(p.K, p.V); i += kLine<T>) {
    ask_columns(p, head, t, end, i);
    for (int64_t r = t; r < end && p.d_o && i < p.V; ++r) ask(p.d_o + p.value(r, head) + i);
  }
}

// Rows t .. t + n of q, k and g, with decays multiplied in. Rows past n and columns past K are zero, their decays one. Asks
// meanwhile for the rows from .. end, which come next: a few at a time, as many as the core can have on their way.
template <bool Dense, bool Gradient, class T>
void prepare(const Problem<T>& p, int64_t head, int64_t t, int64_t n, const ChunkData<T>& x, int64_t from = 0,
             int64_t end = 0) {
  constexpr int64_t N = lanes<T>();
  const Tag<T> d;
  const int64_t Kp = padded(p.K), stride = p.heads * p.K;
  const auto scale = hn::Set(d, p.scale), one = hn::Set(d, T(1)), zero = hn::Zero(d);
  for (int64_t i = 0; i < Kp; i += N) {
    if (i % kLine<T> == 0) ask_columns(p, head, from, end, i);
    const int64_t left = p.K - i;
    const T *q = p.q + p.key(t, head) + i, *k = p.k + p.key(t, head) + i, *g = p.g + p.key(t, head) + i;
    auto load = [&](const T* from, int64_t r)
                    HWY_ATTR { return r < n && left > 0 ? load_part(from + r * stride, left) : zero; };
    if constexpr (Dense) {
      // c / c_mid and its inverse, as running products away from the middle: a sum of g would be near 40 there, and its
      // rounding that of every factor.
      constexpr int64_t mid = kChunk / 2 - 1;
      Vec<T> up[kChunk], down[kChunk];
      up[mid] = down[mid] = one;
      for (int64_t r = mid + 1; r < kChunk; ++r) {
        up[r] = hn::Mul(up[r - 1], hn::Exp(d, load(g, r)));
        down[r] = hn::Div(one, up[r]);
      }
      auto c_mid = hn::Exp(d, load(g, mid));
      for (int64_t r = mid - 1; r >= 0; --r) {
        down[r] = c_mid;
        up[r] = hn::Div(one, down[r]);
        c_mid = hn::Mul(c_mid, hn::Exp(d, load(g, r)));
      }
      const auto tail = up[kChunk - 1];
      for (int64_t r = 0; r < kChunk; ++r) {
        const auto qs = hn::Mul(load(q, r), scale), kr = load(k, r), qm = hn::Mul(qs, up[r]), km = hn::Mul(kr, up[r]);
        const int64_t at = r * Kp + i;
        hn::StoreU(qm, d, x.qk_mid + at), hn::StoreU(km, d, x.qk_mid + kChunk * Kp + at);
        hn::StoreU(hn::Mul(qm, c_mid), d, x.qk_in + at), hn::StoreU(hn::Mul(km, c_mid), d, x.qk_in + kChunk * Kp + at);
        hn::StoreU(hn::Mul(kr, down[r]), d, x.k_inv + at);
        if (r == kChunk - 1 || Gradient) hn::StoreU(hn::Mul(up[r], c_mid), d, x.c + at);
        if (r == kChunk - 1 || Gradient) hn::StoreU(hn::Mul(down[r], tail), d, x.rest + at);
        if constexpr (Gradient) {
          hn::StoreU(qs, d, x.qk + at), hn::StoreU(kr, d, x.qk + kChunk * Kp + at);
          hn::StoreU(up[r], d, x.up + at), hn::StoreU(down[r], d, x.down + at);
        }
      }
      hn::StoreU(tail, d, x.a + i);
    } else {
      auto c = one;
      for (int64_t r = 0; r < kChunk; ++r) {
        const auto a = hn::Exp(d, load(g, r)), qs = hn::Mul(load(q, r), scale), kr = load(k, r);
        const int64_t at = r * Kp + i;
        c = hn::Mul(c, a);
        hn::StoreU(a, d, x.a + at);
        hn::StoreU(qs, d, x.qk + at), hn::StoreU(kr, d, x.qk + kChunk * Kp + at);
        hn::StoreU(hn::Mul(qs, c), d, x.qk_in + at), hn::StoreU(hn::Mul(kr, c), d, x.qk_in + kChunk * Kp + at);
        if (r == kChunk - 1 || Gradient) hn::StoreU(c, d, x.c + at);
      }
      if constexpr (Gradient) {
        auto rest = one;
        for (int64_t r = kChunk - 1; r >= 0; --r) {
          hn::StoreU(rest, d, x.rest + r * Kp + i);
          rest = hn::Mul(rest, hn::LoadU(d, x.a + r * Kp + i));
        }
      }
    }
  }
  for (int64_t i = Kp; i < p.V; i += kLine<T>) ask_columns(p, head, from, end, i);
  for (int64_t r = 0; r < kChunk; ++r) x.beta[r] = r < n ? p.beta[(t + r) * p.heads + head] : T(0);
}

// W[j] = k_j exp(G_r - G_j) for j <= r, one vector of j for each channel, walked down the rows: W *= exp(g_r), then
// lane r is set. Rows r0 .. r0 + R of P and M are dot products with it; W ends as k exp(G_last - G).
template <int R, bool WantP, class T>
HWY_INLINE void pair_rows(int64_t K, int64_t Kp, int64_t r0, int64_t j0, const ChunkData<T>& x) {
  const Tag<T> d;
  Vec<T> P[R], M[R];
  hn::Mask<Tag<T>> here[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    P[r] = M[r] = hn::Zero(d);
    here[r] = hn::Eq(hn::Iota(d, T(j0)), hn::Set(d, T(r0 + r)));
  }
  const T *a = x.a + r0 * Kp, *q = x.qk + r0 * Kp, *k = q + kChunk * Kp;
  for (int64_t i = 0; i < K; ++i) {
    const auto k_i = hn::LoadU(d, x.k_side + i * kChunk + j0);
    auto W = hn::LoadU(d, x.k_rest + i * kChunk + j0);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      W = hn::IfThenElse(here[r], k_i, hn::Mul(W, hn::Set(d, a[r * Kp + i])));
      M[r] = hn::MulAdd(W, hn::Set(d, k[r * Kp + i]), M[r]);
      if constexpr (WantP) P[r] = hn::MulAdd(W, hn::Set(d, q[r * Kp + i]), P[r]);
    }
    hn::StoreU(W, d, x.k_rest + i * kChunk + j0);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    if constexpr (WantP) hn::StoreU(P[r], d, x.pm + (r0 + r) * kChunk + j0);
    hn::StoreU(M[r], d, x.pm + (kChunk + r0 + r) * kChunk + j0);
  }
}

// P (if wanted), M and k_rest.
template <bool Dense, bool WantP, class T>
void pairs(const Problem<T>& p, const ChunkData<T>& x) {
  constexpr int64_t N = lanes<T>();
  const Tag<T> d;
  const int64_t Kp = padded(p.K);
  if constexpr (Dense) {
    transpose(x.k_inv, Kp, Kp, x.k_side);
    constexpr int64_t skip = WantP ? 0 : kChunk;
    product<Start::kZero>(2 * kChunk - skip, kChunk, p.K, x.qk_mid + skip * Kp, Kp, 1, x.k_side, kChunk,
                          x.pm + skip * kChunk, kChunk);
    if constexpr (WantP)  // above the diagonal P is not small, and means nothing
      for (int64_t r = 0; r < kChunk; ++r)
        for (int64_t j = r + 1; j < kChunk; ++j) x.pm[r * kChunk + j] = 0;
    for (int64_t i = 0; i < Kp; ++i)
      for (int64_t j = 0; j < kChunk; j += N)
        hn::StoreU(hn::Mul(hn::LoadU(d, x.k_side + i * kChunk + j), hn::Set(d, x.a[i])), d, x.k_rest + i * kChunk + j);
  } else {
    transpose(x.qk + kChunk * Kp, Kp, Kp, x.k_side);
    std::fill_n(x.k_rest, Kp * kChunk, T(0));
    constexpr int R = HWY_TARGET == HWY_AVX3 ? 8 : 4;
    for (int64_t j0 = 0; j0 < kChunk; j0 += N)
      for (int64_t r0 = 0; r0 < kChunk; r0 += R) {
        if (r0 + R > j0) {
          pair_rows<R, WantP>(p.K, Kp, r0, j0, x);
        } else {
          for (int64_t r = r0; r < r0 + R; ++r) {
            hn::StoreU(hn::Zero(d), d, x.pm + r * kChunk + j0);
            hn::StoreU(hn::Zero(d), d, x.pm + (kChunk + r) * kChunk + j0);
          }
        }
      }
  }
}

// E and U of rows t .. t + n, from the state S [Kp, Vp] that enters.
template <class T>
void errors(const Problem<T>& p, int64_t head, int64_t t, int64_t n, const T* S, const ChunkData<T>& x) {
  constexpr int64_t N = lanes<T>();
  const Tag<T> d;
  const int64_t Kp = padded(p.K), Vp = padded(p.V);
  copy_in(p.v + p.value(t, head), p.heads * p.V, n, p.V, x.E, kChunk, Vp);
  product<Start::kSelf, true>(kChunk, Vp, p.K, x.qk_in + kChunk * Kp, Kp, 1, S, Vp, x.E, Vp);
  const T* M = x.pm + kChunk * kChunk;
  for (int64_t v = 0; v < Vp; v += N) {
    Vec<T> E[kChunk];
#pragma GCC unroll 16
    for (int r = 0; r < kChunk; ++r) E[r] = hn::LoadU(d, x.E + r * Vp + v);
#pragma GCC unroll 16
    for (int j = 0; j < kChunk; ++j) {
      const auto U = hn::Mul(E[j], hn::Set(d, x.beta[j]));
      hn::StoreU(E[j], d, x.E + j * Vp + v), hn::StoreU(U, d, x.U + j * Vp + v);
#pragma GCC unroll 16
      for (int r = j + 1; r < kChunk; ++r) E[r] = hn::NegMulAdd(U, hn::Set(d, M[r * kChunk + j]), E[r]);
    }
  }
}

// S <- c_last S + k_rest U
template <class T>
void advance(const Problem<T>& p, T* S, const ChunkData<T>& x) {
  const int64_t Kp = padded(p.K), Vp = padded(p.V);
  product<Start::kScaledSelf>(Kp, Vp, kChunk, x.k_rest, kChunk, 1, x.U, Vp, S, Vp, x.c + (kChunk - 1) * Kp);
}

template <class T>
void load_state(const Problem<T>& p, const Span& s, T* S) {  // -> [Kp, Vp]
  if (p.s0)
    copy_in(p.s0 + p.matrix(s), p.V, p.K, p.V, S, padded(p.K), padded(p.V));
  else
    std::fill_n(S, padded(p.K) * padded(p.V), T(0));
}

}  // namespace HWY_NAMESPACE
}  // namespace kda
HWY_AFTER_NAMESPACE();
#endif
