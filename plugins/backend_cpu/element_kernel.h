// element_kernel.h: what the element kernels share: the declaration of a kernel, widths of types, rows in use, pieces
// of work.
#pragma once
#include <cstring>

#include "kitbash/op.h"
#include "kitbash/ops.h"

namespace kb::cpu {

// Elements below which one thread is quicker than the team.
inline constexpr int64_t kGrain = 16384;
inline constexpr int64_t kMathGrain = 4096;  // exp and its like

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
      fail("a tensor has no type ", dtype, " on the cpu");
  }
}
inline int64_t product(const kb_type& t, int from, int to) {
  int64_t n = 1;
  for (int i = from; i < to; ++i) n *= t.shape[i];
  return n;
}
// Elements in the rows in use; the host clears those past them.
inline int64_t used(const Call& c, const kb_type& t) { return t.rank ? c.rows(t) * product(t, 1, t.rank) : 1; }
inline int normal_axis(int64_t axis, int rank) {
  const int64_t a = axis < 0 ? axis + rank : axis;
  if (a < 0 || a >= rank) fail("axis ", axis, " must be in [", -rank, ", ", rank, ")");
  return int(a);
}
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t pieces_of(int64_t work, int64_t least, int64_t most) {
  return std::clamp<int64_t>(work / least, 1, most);
}

// Any of u8, i32, i64, f32, f64 by one template; bf16 lives on the cpu in copies and casts only.
template <class F>
void numbers(uint32_t dtype, F&& f) {
  switch (dtype) {
    case KB_U8:
      return f.template operator()<uint8_t>();
    case KB_I32:
      return f.template operator()<int32_t>();
    case KB_I64:
      return f.template operator()<int64_t>();
    case KB_F32:
      return f.template operator()<float>();
    case KB_F64:
      return f.template operator()<double>();
    default:
      fail("has no kernel for ", dtype_name(dtype), " on the cpu");
  }
}

inline void refuse_bf16(const Call& c) {
  for (uint32_t i = 0; i < c.n_in(); ++i)
    if (c.has(i) && c.in(i).dtype == KB_BF16) fail("input ", i, " must be f32 or f64 on the cpu but got bf16");
  for (uint32_t o = 0; o < c.n_out(); ++o)
    if (c.out(o).dtype == KB_BF16) fail("output ", o, " must be f32 or f64 on the cpu but got bf16");
}

// Sets and copies bytes with the team when there is enough to share.
inline void clear_bytes(const Call& c, void* p, int64_t n) {
  c.parallel(n, 1 << 18,
             [&](int64_t b, int64_t e, int32_t) { std::memset(static_cast<char*>(p) + b, 0, size_t(e - b)); });
}
inline void copy_bytes(const Call& c, void* to, const void* from, int64_t n) {
  if (to == from) return;
  c.parallel(n, 1 << 17, [&](int64_t b, int64_t e, int32_t) {
    std::memcpy(static_cast<char*>(to) + b, static_cast<const char*>(from) + b, size_t(e - b));
  });
}

}  // namespace kb::cpu

// Declares one kernel: KB_CPU_KERNEL(Exp) is ExpKernel for kb::ops::Exp, whose launch is defined in a .cpp.
#define KB_CPU_HEAD(T)                       \
  using Op = kb::ops::T;                     \
  static constexpr const char* name = "cpu"; \
  static constexpr uint32_t device = KB_CPU; \
  static void launch(const kb::Call& c, const Op& o)
#define KB_CPU_KERNEL(T)                                                            \
  struct T##Kernel {                                                                \
    KB_CPU_HEAD(T);                                                                 \
    static void supports(const kb::Call& c, const Op&) { kb::cpu::refuse_bf16(c); } \
  }
#define KB_CPU_KERNEL_ANY(T) \
  struct T##Kernel {         \
    KB_CPU_HEAD(T);          \
  }
