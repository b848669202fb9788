// pointwise.cu: one kernel for all functions of one operand, one for those of two: the function is chosen by a branch
// that a whole launch takes alike, once for 8 elements. A thread owns 8 neighbours: 16 bytes of bf16, 32 of f32.
#include "element.cuh"
#include "pointwise_cuda.h"

namespace kb::cuda::element {
namespace {

constexpr int kThreads = 256, kUnit = 8;

// Rough: the result is rounded to bf16, so the hardware's exponential (2 ulp of float near 0) is good enough.
template <bool kRough>
__device__ inline float exponential(float x) {
  return kRough ? __expf(x) : expf(x);
}
template <bool kRough>
__device__ inline float quotient(float a, float b) {
  return kRough ? __fdividef(a, b) : a / b;
}
template <bool kRough>
__device__ inline float sigmoid(float x) {
  const float e = exponential<kRough>(-fabsf(x));        // in (0, 1]
  return quotient<kRough>(x >= 0 ? 1.0f : e, 1.0f + e);  // NaN: e is NaN
}
template <bool kRough>
__device__ inline float hyperbolic_tangent(float x) {
  if (!kRough) return tanhf(x);
  if (fabsf(x) < 0.05f) return x * (1.0f - x * x * (1.0f / 3 - x * x * (2.0f / 15)));  // no cancellation near 0
  const float e = __expf(-2.0f * fabsf(x));
  return copysignf(__fdividef(1.0f - e, 1.0f + e), x);
}

// 1 + e loses the low bits of a small e.
template <bool kRough>
__device__ inline float softplus(float x) {
  if (x != x) return x;
  const float e = exponential<kRough>(-fabsf(x)), most = fmaxf(x, 0.0f);
  if (!kRough) return most + log1pf(e);
  return most + (e < 0.01f ? e - 0.5f * e * e : __logf(1.0f + e));
}

#define KB_EACH(expression)                       \
  _Pragma("unroll") for (int i = 0; i < V; ++i) { \
    const float v = f[i];                         \
    f[i] = expression;                            \
  }                                               \
  break
template <bool kRough, int V>
__device__ inline void apply(Unary function, float (&f)[V], float mul, float add) {
  switch (function) {
    case Unary::affine:
      KB_EACH(fmaf(mul, v, add));
    case Unary::exp:
      KB_EACH(exponential<kRough>(v));
    case Unary::log:
      KB_EACH(kRough ? __logf(v) : logf(v));
    case Unary::sigmoid:
      KB_EACH(sigmoid<kRough>(v));
    case Unary::tanh:
      KB_EACH(hyperbolic_tangent<kRough>(v));
    case Unary::softplus:
      KB_EACH(softplus<kRough>(v));
    case Unary::rsqrt:
      KB_EACH(kRough ? rsqrtf(v) : 1.0f / sqrtf(v));
    case Unary::sqrt:
      KB_EACH(sqrtf(v));
    case Unary::sin:
      KB_EACH(sinf(v));
    case Unary::cos:
      KB_EACH(cosf(v));
    case Unary::erf:
      KB_EACH(erff(v));
    case Unary::floor:
      KB_EACH(floorf(v));
    case Unary::is_finite:
      KB_EACH(fabsf(v) < INFINITY ? 1.0f : 0.0f);
  }
}
#undef KB_EACH

template <class T>
__global__ void __launch_bounds__(kThreads)
    unary_kernel(Unary function, const T* x, T* y, int64_t n, float mul, float add, bool vector) {
  const int64_t i = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kUnit;
  if (vector && i + kUnit <= n) {
    float f[kUnit];
    load(x + i, f);
    apply<sizeof(T) == 2>(function, f, mul, add);
    store(y + i, f);
    return;
  }
  for (int64_t k = i; k < n && k < i + kUnit; ++k) {
    float f[1];
    load(x + k, f);
    apply<sizeof(T) == 2>(function, f, mul, add);
    store(y + k, f);
  }
}

__global__ void affine_integers(const int32_t* x, int32_t* y, int64_t n, double mul, double add) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) y[i] = int32_t(mul * double(x[i]) + add);
}

// C: what is computed in, float or int32_t.
template <class C>
__device__ inline C combine(Binary function, C a, C b) {
  switch (function) {
    case Binary::add:
      return a + b;
    case Binary::sub:
      return a - b;
    case Binary::mul:
      return a * b;
    case Binary::div:
      return a / b;  // integers do not come here: supports() declines
    case Binary::minimum:
      return a < b ? a : b;
    case Binary::maximum:
      return a > b ? a : b;
    case Binary::less:
      return C(a < b);
  }
  return a;
}

template <class C, int V>
__device__ inline void combine_all(Binary function, C (&a)[V], const C (&b)[V]) {
#define KB_EACH(name)                                                                       \
  case Binary::name:                                                                        \
    _Pragma("unroll") for (int i = 0; i < V; ++i) a[i] = combine(Binary::name, a[i], b[i]); \
    break
  switch (function) {
    KB_EACH(add);
    KB_EACH(sub);
    KB_EACH(mul);
    KB_EACH(div);
    KB_EACH(minimum);
    KB_EACH(maximum);
    KB_EACH(less);
  }
#undef KB_EACH
}

template <class C, class A, class B, class Y, int V>
__global__ void __launch_bounds__(kThreads)
    binary_kernel(Binary function, const A* a, const B* b, Y* y, const __grid_constant__ Walk<2> walk) {
  const int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= walk.total) return;
  int64_t at[2];
  walk.place(i, at);
  C u[V], w[V];
  if (V == 1 || walk.inner_step[0]) {
    load(a + at[0], u);
  } else {
    C v[1];
    load(a + at[0], v);
#pragma unroll
    for (int k = 0; k < V; ++k) u[k] = v[0];
  }
  if (V == 1 || walk.inner_step[1]) {
    load(b + at[1], w);
  } else {
    C v[1];
    load(b + at[1], v);
#pragma unroll
    for (int k = 0; k < V; ++k) w[k] = v[0];
  }
  combine_all(function, u, w);
  store(y + i * V, u);
}

unsigned blocks(int64_t n, int64_t each) { return unsigned((n + each - 1) / each); }

template <class C, class A, class B, class Y>
void launch_binary(Binary f, const void* a, const void* b, void* y, const Walk<2>& w, bool vector, cudaStream_t s) {
  const auto* pa = static_cast<const A*>(a);
  const auto* pb = static_cast<const B*>(b);
  auto* py = static_cast<Y*>(y);
  if (vector)
    binary_kernel<C, A, B, Y, kUnit><<<blocks(w.total, kThreads), kThreads, 0, s>>>(f, pa, pb, py, w);
  else
    binary_kernel<C, A, B, Y, 1><<<blocks(w.total, kThreads), kThreads, 0, s>>>(f, pa, pb, py, w);
}

}  // namespace

void unary(Unary f, uint32_t dtype, const void* x, void* y, int64_t n, double mul, double add, cudaStream_t s) {
  if (n == 0) return;
  if (dtype == KB_I32) {
    affine_integers<<<blocks(n, kThreads), kThreads, 0, s>>>(static_cast<const int32_t*>(x), static_cast<int32_t*>(y),
                                                             n, mul, add);
    return;
  }
  const bool vector = (reinterpret_cast<uintptr_t>(x) | reinterpret_cast<uintptr_t>(y)) % 16 == 0;
  const unsigned grid = blocks(n, kThreads * kUnit);
  if (dtype == KB_BF16)
    unary_kernel<<<grid, kThreads, 0, s>>>(f, static_cast<const Bf16*>(x), static_cast<Bf16*>(y), n, float(mul),
                                           float(add), vector);
  else
    unary_kernel<<<grid, kThreads, 0, s>>>(f, static_cast<const float*>(x), static_cast<float*>(y), n, float(mul),
                                           float(add), vector);
}

void binary(Binary f, BinaryOperand a, BinaryOperand b, void* y, uint32_t dtype, const Walk<2>& w, bool vector,
            cudaStream_t s) {
  if (w.total == 0) return;
  const bool ha = a.dtype == KB_BF16, hb = b.dtype == KB_BF16;
  if (dtype == KB_I32) return launch_binary<int32_t, int32_t, int32_t, int32_t>(f, a.at, b.at, y, w, vector, s);
  if (ha && hb) return launch_binary<float, Bf16, Bf16, Bf16>(f, a.at, b.at, y, w, vector, s);
  if (ha) return launch_binary<float, Bf16, float, float>(f, a.at, b.at, y, w, vector, s);
  if (hb) return launch_binary<float, float, Bf16, float>(f, a.at, b.at, y, w, vector, s);
  launch_binary<float, float, float, float>(f, a.at, b.at, y, w, vector, s);
}

}  // namespace kb::cuda::element
