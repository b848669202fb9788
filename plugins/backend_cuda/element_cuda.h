// element_cuda.h: what the host code of the element kernels shares: the declaration of a kernel, which types it takes,
// sizes, and walks over broadcast operands.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <initializer_list>

#include "kitbash/op.h"
#include "kitbash/ops.h"
#include "walk.h"

namespace kb::cuda::element {

inline cudaStream_t stream(const Call& c) { return static_cast<cudaStream_t>(c.c->device->stream); }
inline void check(cudaError_t e, const char* what) {
  if (e != cudaSuccess) fail(what, " must succeed but got: ", cudaGetErrorString(e));
}
inline void launched() { check(cudaGetLastError(), "the launch of a kernel"); }

// ---- types, as bits
constexpr uint32_t one(uint32_t dtype) { return 1u << dtype; }
inline constexpr uint32_t kFloats = one(KB_BF16) | one(KB_F32), kIds = one(KB_I32), kWide = one(KB_F32);
inline constexpr uint32_t kNumbers = kFloats | one(KB_I32) | one(KB_I64) | one(KB_U8);

inline std::string names(uint32_t types) {
  std::string s;
  for (uint32_t d = KB_U8; d <= KB_F64; ++d)
    if (types >> d & 1) s += (s.empty() ? "" : " or ") + std::string(dtype_name(d));
  return s;
}
inline void expect(const kb_type& t, const char* what, uint32_t n, uint32_t types) {
  if (t.dtype > KB_F64 || !(types >> t.dtype & 1))
    fail(what, " ", n, " must be ", names(types), " on cuda but got ", dtype_name(t.dtype));
}
// Input i must be of types[i]; absent ones and those past the list are not looked at.
inline void takes(const Call& c, std::initializer_list<uint32_t> types) {
  uint32_t i = 0;
  for (uint32_t t : types) {
    if (c.has(i)) expect(c.in(i), "input", i, t);
    ++i;
  }
}
inline void gives(const Call& c, std::initializer_list<uint32_t> types) {
  uint32_t o = 0;
  for (uint32_t t : types) {
    if (o < c.n_out()) expect(c.out(o), "output", o, t);
    ++o;
  }
}

// ---- sizes
inline int64_t width_of(uint32_t dtype) {
  switch (dtype) {
    case KB_U8:
      return 1;
    case KB_BF16:
      return 2;
    case KB_I32:
    case KB_F32:
      return 4;
    case KB_I64:
    case KB_F64:
      return 8;
    default:
      fail("a tensor has no type ", dtype, " on cuda");
  }
}
inline int64_t product(const kb_type& t, int from, int to) {
  int64_t n = 1;
  for (int i = from; i < to; ++i) n *= t.shape[i];
  return n;
}
inline int normal_axis(int64_t axis, int rank) {
  const int64_t a = axis < 0 ? axis + rank : axis;
  if (a < 0 || a >= rank) fail("axis ", axis, " must be in [", -rank, ", ", rank, ")");
  return int(a);
}
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t padded(int64_t floats) { return ceil_div(floats, 64) * 64; }  // parts of a workspace
inline bool aligned(const void* p, int64_t bytes) { return reinterpret_cast<uintptr_t>(p) % uintptr_t(bytes) == 0; }

// The device integer that says how many rows of axis 0 are in use; NULL: all. Only kernels may read it.
inline const int32_t* rows_in_use(const Call& c, const kb_type& t) {
  return t.extent && c.c->extents ? c.c->extents + t.extent : nullptr;
}

// The walk over `out` by dense operands that broadcast to it.
template <int N>
WalkMaker<N> broadcast_walk(const kb_type& out, const kb_type* const (&in)[N]) {
  int64_t stride[N][KB_MAX_RANK] = {};
  for (int k = 0; k < N; ++k) {
    const kb_type& t = *in[k];
    int64_t s = 1;
    for (int i = 1; i <= t.rank; ++i) {
      const int64_t n = t.shape[t.rank - i];
      if (i > out.rank || (n != 1 && n != out.shape[out.rank - i]))
        fail("operand ", k, " must broadcast to the result but has ", n, " on axis ", t.rank - i);
      stride[k][out.rank - i] = n == 1 ? 0 : s;
      s *= n;
    }
  }
  WalkMaker<N> w;
  for (int d = 0; d < out.rank; ++d) {
    int64_t s[N];
    for (int k = 0; k < N; ++k) s[k] = stride[k][d];
    w.push(out.shape[d], s);
  }
  return w;
}

}  // namespace kb::cuda::element

// Declares a kernel: its launch and supports are defined in a .cpp.
#define KB_CUDA_HEAD(T)                                 \
  using Op = kb::ops::T;                                \
  static constexpr const char* name = "cuda";           \
  static constexpr uint32_t device = KB_CUDA;           \
  static void supports(const kb::Call& c, const Op& o); \
  static void launch(const kb::Call& c, const Op& o)
#define KB_CUDA_KERNEL(T) \
  struct T##Kernel {      \
    KB_CUDA_HEAD(T);      \
  }
