// CPU kernels of depth_mix: two passes over the sources of one token, which stay in the cache between them.
#include "depth_mix.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "depth_mix_cpu.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#ifndef KITBASH_DEPTH_MIX_ARGS
#define KITBASH_DEPTH_MIX_ARGS
namespace depth_mix {

inline constexpr int kMost = int(DepthMix::kMaxSources);

template <class T>
struct Args {
  const T* v[kMost];  // sources, [tokens, d]
  int n;
  int64_t d;
  const T* c;  // norm * query
  double eps;
  T *h, *p;         // forward; p may be null
  const T* dh;      // backward
  T* dv[kMost];     // null: not wanted
  bool add[kMost];  // to dv instead of overwriting it
};

// Softmax weights of one token from the dot products c . v and v . v; `root` gets rsqrt(mean + eps).
template <class T>
void weights(const Args<T>& a, const T* cv, const T* vv, double* p, double* root) {
  double top = -INFINITY, sum = 0;
  for (int i = 0; i < a.n; ++i) {
    root[i] = 1 / std::sqrt(double(vv[i]) / double(a.d) + a.eps);
    p[i] = double(cv[i]) * root[i];
    top = std::max(top, p[i]);
  }
  for (int i = 0; i < a.n; ++i) sum += p[i] = std::exp(p[i] - top);
  for (int i = 0; i < a.n; ++i) p[i] /= sum;
}

}  // namespace depth_mix
#endif

HWY_BEFORE_NAMESPACE();
namespace depth_mix {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// c . v, v . v and, with kUp, u . v.
template <bool kUp, class T>
HWY_INLINE void dots(const T* v, const T* c, const T* u, int64_t d, T* cv, T* vv, T* uv) {
  const hn::ScalableTag<T> tag;
  const int64_t lanes = int64_t(hn::Lanes(tag));
  auto s0 = hn::Zero(tag), s1 = s0, q0 = s0, q1 = s0, w0 = s0, w1 = s0;
  int64_t x = 0;
  for (; x + 2 * lanes <= d; x += 2 * lanes) {
    const auto a = hn::LoadU(tag, v + x), b = hn::LoadU(tag, v + x + lanes);
    s0 = hn::MulAdd(a, hn::LoadU(tag, c + x), s0), s1 = hn::MulAdd(b, hn::LoadU(tag, c + x + lanes), s1);
    q0 = hn::MulAdd(a, a, q0), q1 = hn::MulAdd(b, b, q1);
    if constexpr (kUp)
      w0 = hn::MulAdd(a, hn::LoadU(tag, u + x), w0), w1 = hn::MulAdd(b, hn::LoadU(tag, u + x + lanes), w1);
  }
  *cv = hn::GetLane(hn::SumOfLanes(tag, hn::Add(s0, s1)));
  *vv = hn::GetLane(hn::SumOfLanes(tag, hn::Add(q0, q1)));
  if constexpr (kUp) *uv = hn::GetLane(hn::SumOfLanes(tag, hn::Add(w0, w1)));
  for (; x < d; ++x) {
    *cv += v[x] * c[x], *vv += v[x] * v[x];
    if constexpr (kUp) *uv += v[x] * u[x];
  }
}

template <class T>
HWY_INLINE void forward(const Args<T>& a, int64_t begin, int64_t end) {
  const hn::ScalableTag<T> tag;
  const int64_t lanes = int64_t(hn::Lanes(tag));
  for (int64_t t = begin; t < end; ++t) {
    const int64_t at = t * a.d;
    T cv[kMost], vv[kMost];
    double p[kMost], root[kMost];
    for (int i = 0; i < a.n; ++i) dots<false>(a.v[i] + at, a.c, a.c, a.d, cv + i, vv + i, static_cast<T*>(nullptr));
    weights(a, cv, vv, p, root);
    if (a.p)
      for (int i = 0; i < a.n; ++i) a.p[t * a.n + i] = T(p[i]);
    if (!a.h) continue;
    int64_t x = 0;
    for (; x + lanes <= a.d; x += lanes) {
      auto sum = hn::Mul(hn::Set(tag, T(p[0])), hn::LoadU(tag, a.v[0] + at + x));
      for (int i = 1; i < a.n; ++i) sum = hn::MulAdd(hn::Set(tag, T(p[i])), hn::LoadU(tag, a.v[i] + at + x), sum);
      hn::StoreU(sum, tag, a.h + at + x);
    }
    for (; x < a.d; ++x) {
      T sum = T(p[0]) * a.v[0][at + x];
      for (int i = 1; i < a.n; ++i) sum += T(p[i]) * a.v[i][at + x];
      a.h[at + x] = sum;
    }
  }
}

// y = alpha u + beta c + gamma v, or added to y; z += beta v. y, z: null if not wanted.
template <class T>
HWY_INLINE void spread(const T* u, const T* c, const T* v, T alpha, T beta, T gamma, int64_t d, T* y, bool add, T* z) {
  const hn::ScalableTag<T> tag;
  const int64_t lanes = int64_t(hn::Lanes(tag));
  const auto va = hn::Set(tag, alpha), vb = hn::Set(tag, beta), vg = hn::Set(tag, gamma);
  int64_t x = 0;
  for (; x + lanes <= d; x += lanes) {
    const auto s = hn::LoadU(tag, v + x);
    if (y) {
      auto r = hn::MulAdd(vb, hn::LoadU(tag, c + x), hn::Mul(va, hn::LoadU(tag, u + x)));
      r = hn::MulAdd(vg, s, r);
      hn::StoreU(add ? hn::Add(r, hn::LoadU(tag, y + x)) : r, tag, y + x);
    }
    if (z) hn::StoreU(hn::MulAdd(vb, s, hn::LoadU(tag, z + x)), tag, z + x);
  }
  for (; x < d; ++x) {
    if (y) y[x] = alpha * u[x] + beta * c[x] + gamma * v[x] + (add ? y[x] : T(0));
    if (z) z[x] += beta * v[x];
  }
}

// Tokens [begin, end); dc [d] is added to, or null.
template <class T>
HWY_INLINE void backward(const Args<T>& a, int64_t begin, int64_t end, T* dc) {
  for (int64_t t = begin; t < end; ++t) {
    const int64_t at = t * a.d;
    T cv[kMost], vv[kMost], uv[kMost];
    double p[kMost], root[kMost], mean = 0;
    for (int i = 0; i < a.n; ++i) dots<true>(a.v[i] + at, a.c, a.dh + at, a.d, cv + i, vv + i, uv + i);
    weights(a, cv, vv, p, root);
    for (int i = 0; i < a.n; ++i) mean += p[i] * double(uv[i]);
    for (int i = 0; i < a.n; ++i) {
      if (!a.dv[i] && !dc) continue;
      const double beta = p[i] * (double(uv[i]) - mean) * root[i];
      const double gamma = -beta * root[i] * root[i] * double(cv[i]) / double(a.d);
      spread(a.dh + at, a.c, a.v[i] + at, T(p[i]), T(beta), T(gamma), a.d, a.dv[i] ? a.dv[i] + at : nullptr, a.add[i],
             dc);
    }
  }
}

void forward_f32(const Args<float>& a, int64_t b, int64_t e) { forward(a, b, e); }
void forward_f64(const Args<double>& a, int64_t b, int64_t e) { forward(a, b, e); }
void backward_f32(const Args<float>& a, int64_t b, int64_t e, float* dc) { backward(a, b, e, dc); }
void backward_f64(const Args<double>& a, int64_t b, int64_t e, double* dc) { backward(a, b, e, dc); }

}  // namespace HWY_NAMESPACE
}  // namespace depth_mix
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace depth_mix {
HWY_EXPORT(forward_f32);
HWY_EXPORT(forward_f64);
HWY_EXPORT(backward_f32);
HWY_EXPORT(backward_f64);

template <class T>
Args<T> arguments(const kb::Call& c, uint32_t n, double eps, T* product) {
  Args<T> a{};
  for (uint32_t i = 0; i < n; ++i) a.v[i] = c.get<T>(i);
  a.n = int(n), a.d = c.dim(0, 1), a.eps = eps, a.c = product;
  for (int64_t x = 0; x < a.d; ++x) product[x] = c.get<T>(n)[x] * c.get<T>(n + 1)[x];
  return a;
}
}  // namespace depth_mix

void DepthMixCpu::launch(const kb::Call& c, const DepthMix& op) {
  kb::floats(c.in(0).dtype, [&]<class T>() {
    depth_mix::Args<T> a = depth_mix::arguments(c, c.n_in() - 2, op.eps, c.workspace<T>());
    a.h = c.put<T>(0), a.p = c.put<T>(1);
    c.parallel(c.rows(c.in(0)), 8, [&](int64_t b, int64_t e, int32_t) {
      if constexpr (sizeof(T) == 4)
        HWY_DYNAMIC_DISPATCH(depth_mix::forward_f32)(a, b, e);
      else
        HWY_DYNAMIC_DISPATCH(depth_mix::forward_f64)(a, b, e);
    });
  });
}

void DepthMixBackwardCpu::launch(const kb::Call& c, const DepthMixBackward& op) {
  kb::floats(c.in(0).dtype, [&]<class T>() {
    const uint32_t n = c.n_in() - 3;
    const int64_t d = c.dim(0, 1), rows = c.rows(c.in(0)), part = (c.dim(0, 0) + kParts - 1) / kParts;
    T* product = c.workspace<T>();
    T* partial = product + d;  // [kParts, d]
    depth_mix::Args<T> a = depth_mix::arguments(c, n, op.eps, product);
    a.dh = c.get<T>(n + 2);
    for (uint32_t i = 0; i < n; ++i) a.dv[i] = c.put<T>(i), a.add[i] = c.adds(i);
    T *dnorm = c.put<T>(n), *dquery = c.put<T>(n + 1);
    const bool wanted = dnorm || dquery;
    if (wanted) std::fill(partial, partial + kParts * d, T(0));
    c.parallel(kParts, 1, [&](int64_t first, int64_t last, int32_t) {
      for (int64_t k = first; k < last; ++k) {
        const int64_t b = std::min(rows, k * part), e = std::min(rows, b + part);
        T* dc = wanted ? partial + k * d : nullptr;
        if constexpr (sizeof(T) == 4)
          HWY_DYNAMIC_DISPATCH(depth_mix::backward_f32)(a, b, e, dc);
        else
          HWY_DYNAMIC_DISPATCH(depth_mix::backward_f64)(a, b, e, dc);
      }
    });
    if (!wanted) return;
    for (int64_t x = 0; x < d; ++x) {
      double dc = 0;
      for (int64_t k = 0; k < kParts; ++k) dc += double(partial[k * d + x]);
      if (dnorm) dnorm[x] = T(dc * double(c.get<T>(n + 1)[x])) + (c.adds(n) ? dnorm[x] : T(0));
      if (dquery) dquery[x] = T(dc * double(c.get<T>(n)[x])) + (c.adds(n + 1) ? dquery[x] : T(0));
    }
  });
}
#endif
