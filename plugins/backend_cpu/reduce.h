// reduce.h: sums, maxima, softmax. Sums gather at most 64 numbers in the type itself, then in double; pieces are cut
// by shape alone, so that the team's size changes no bit.
#pragma once
#include "element_kernel.h"

namespace kb::cpu {

// One reduction of the middle axis of [outer, width, inner].
struct Middle {
  int64_t outer, width, inner;
};
// Doubles that sum_middle needs beside its operands.
int64_t sum_middle_room(const Middle& m);
// y [outer, inner] (+)= the sums of x over the middle; In, Out: float or double.
template <class In, class Out>
void sum_middle(const Call& c, const In* x, const Middle& m, Out* y, bool add, double* room);

struct SumKernel {
  KB_CPU_HEAD(Sum);
  static constexpr uint32_t accumulates = 1;
  static void supports(const Call& c, const Op&) { refuse_bf16(c); }
  static uint64_t workspace(const Call& c, const Op& o);
};
struct SumToKernel {
  KB_CPU_HEAD(SumTo);
  static constexpr uint32_t accumulates = 1;
  static void supports(const Call& c, const Op&) { refuse_bf16(c); }
  static uint64_t workspace(const Call& c, const Op& o);
};
struct SquareSumKernel {
  KB_CPU_HEAD(SquareSum);
  static void supports(const Call& c, const Op&) { refuse_bf16(c); }
  static uint64_t workspace(const Call& c, const Op& o);
};
KB_CPU_KERNEL(Amax);  // NaN counts nowhere
KB_CPU_KERNEL(Softmax);
}  // namespace kb::cpu

#define KB_REDUCE_KERNELS                                                                           \
  kernel<kb::cpu::SumKernel>(), kernel<kb::cpu::SumToKernel>(), kernel<kb::cpu::SquareSumKernel>(), \
      kernel<kb::cpu::AmaxKernel>(), kernel<kb::cpu::SoftmaxKernel>()
