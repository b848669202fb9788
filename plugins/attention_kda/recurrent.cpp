// recurrent.cpp: kernel `recurrent` of `kda`: token by token, vectors along V. The choice for decode, where it reads
// and writes each state once from memory.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "recurrent.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "flush.h"
#include "hwy/contrib/math/math-inl.h"
#include "kernels.h"
#include "problem.h"
#include "tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kda {
namespace HWY_NAMESPACE {

// Columns v .. v + NV vectors of one step; S [K, width]. ak = exp(g) k.
//   e = v - S^T ak;  S = diag(exp g) S + k (beta e)^T;  o = S^T q
template <int NV, class T>
HWY_INLINE void step_columns(int64_t K, int64_t width, const T* a, const T* ak, const T* k, const T* q, T beta,
                             const T* v, T* S, T* o) {
  constexpr int64_t N = lanes<T>();
  const Tag<T> d;
  Vec<T> even[NV], odd[NV];
#pragma GCC unroll 4
  for (int n = 0; n < NV; ++n) even[n] = hn::LoadU(d, v + n * N), odd[n] = hn::Zero(d);
  int64_t i = 0;
  for (; i + 1 < K; i += 2)
#pragma GCC unroll 4
    for (int n = 0; n < NV; ++n) {
      even[n] = hn::NegMulAdd(hn::Set(d, ak[i]), hn::LoadU(d, S + i * width + n * N), even[n]);
      odd[n] = hn::NegMulAdd(hn::Set(d, ak[i + 1]), hn::LoadU(d, S + (i + 1) * width + n * N), odd[n]);
    }
  for (; i < K; ++i)
#pragma GCC unroll 4
    for (int n = 0; n < NV; ++n)
      even[n] = hn::NegMulAdd(hn::Set(d, ak[i]), hn::LoadU(d, S + i * width + n * N), even[n]);
  Vec<T> u[NV], out[NV];
#pragma GCC unroll 4
  for (int n = 0; n < NV; ++n) u[n] = hn::Mul(hn::Set(d, beta), hn::Add(even[n], odd[n])), out[n] = hn::Zero(d);
  for (i = 0; i < K; ++i)
#pragma GCC unroll 4
    for (int n = 0; n < NV; ++n) {
      T* at = S + i * width + n * N;
      const auto now = hn::MulAdd(hn::Set(d, k[i]), u[n], hn::Mul(hn::Set(d, a[i]), hn::LoadU(d, at)));
      out[n] = hn::MulAdd(hn::Set(d, q[i]), now, out[n]);
      hn::StoreU(now, d, at);
    }
#pragma GCC unroll 4
  for (int n = 0; n < NV; ++n) hn::StoreU(out[n], d, o + n * N);
}

template <class T>
void recurrent_span(const Problem<T>& p, const Span& s, T* work) {
  constexpr int64_t N = lanes<T>();
  const Tag<T> d;
  const int64_t Kp = padded(p.K), Vp = padded(p.V);
  // In place in the state where its rows are whole vectors, else on a padded copy.
  const bool direct = p.state && p.V % N == 0;
  const int64_t width = direct ? p.V : Vp, rows = direct ? p.K : Kp;
  T *S = direct ? p.state + p.matrix(s) : work, *a = work + Kp * Vp, *ak = a + Kp, *k = ak + Kp, *q = k + Kp,
    *v = q + Kp, *o = v + Vp;
  const T* before = p.s0 ? p.s0 + p.matrix(s) : nullptr;
  if (!before)
    std::fill_n(S, rows * width, T(0));
  else if (before != S)
    copy_in(before, p.V, p.K, p.V, S, rows, width);
  for (int64_t t = s.lo; t < s.hi; ++t) {
    const int64_t key = p.key(t, s.head), value = p.value(t, s.head);
    for (int64_t i = 0; i < p.K; i += N) {
      const auto decay = hn::Exp(d, load_part(p.g + key + i, p.K - i)), k_i = load_part(p.k + key + i, p.K - i);
      hn::StoreU(decay, d, a + i), hn::StoreU(k_i, d, k + i), hn::StoreU(hn::Mul(decay, k_i), d, ak + i);
      hn::StoreU(hn::Mul(load_part(p.q + key + i, p.K - i), hn::Set(d, p.scale)), d, q + i);
    }
    copy_in(p.v + value, p.V, 1, p.V, v, 1, Vp);
    const T beta = p.beta[t * p.heads + s.head];
    int64_t j = 0;
    for (; j + 4 * N <= width; j += 4 * N) step_columns<4>(p.K, width, a, ak, k, q, beta, v + j, S + j, o + j);
    for (; j + 2 * N <= width; j += 2 * N) step_columns<2>(p.K, width, a, ak, k, q, beta, v + j, S + j, o + j);
    for (; j < width; j += N) step_columns<1>(p.K, width, a, ak, k, q, beta, v + j, S + j, o + j);
    if (p.o) copy_out(o, Vp, p.o + value, p.V, 1, p.V);
  }
  if (p.state && !direct) copy_out(S, Vp, p.state + p.matrix(s), p.V, p.K, p.V);
}

void recurrent32(const Problem<float>& p, const Span& s, float* work) { recurrent_span(p, s, work); }
void recurrent64(const Problem<double>& p, const Span& s, double* work) { recurrent_span(p, s, work); }
int64_t recurrent_work(int64_t K, int64_t V) { return padded(K) * padded(V) + 4 * padded(K) + 2 * padded(V); }

}  // namespace HWY_NAMESPACE
}  // namespace kda
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kda {
namespace {
HWY_EXPORT(recurrent32);
HWY_EXPORT(recurrent64);
HWY_EXPORT(recurrent_work);

int64_t work(const kb::Call& c) { return HWY_DYNAMIC_DISPATCH(recurrent_work)(c.dim(kQ, 2), c.dim(kV, 2)); }
}  // namespace

void Recurrent::supports(const kb::Call& c, const Op&) { wants_floats(c); }
int64_t Recurrent::workspace(const kb::Call& c, const Op&) {
  return c.threads() * work(c) * (c.in(kQ).dtype == KB_F64 ? 8 : 4);
}
void Recurrent::launch(const kb::Call& c, const Op& op) {
  kb::floats(c.in(kQ).dtype, [&]<class T>() {
    const Problem<T> p = forward_problem<T>(c, op);
    const int64_t size = work(c);
    each_head(c, p, [&](const Span& s, int32_t thread) {
      const FlushDenormals flush;
      T* w = c.workspace<T>() + thread * size;
      if constexpr (sizeof(T) == 4)
        HWY_DYNAMIC_DISPATCH(recurrent32)(p, s, w);
      else
        HWY_DYNAMIC_DISPATCH(recurrent64)(p, s, w);
    });
    clear_unused(p, p.o, p.heads * p.V);
  });
}

}  // namespace kda
#endif
