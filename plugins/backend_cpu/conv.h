// conv.h: causal depthwise convolution of a few taps over packed documents, without an activation:
// y[t, c] = sum over j < taps of w[c, j] x[t - taps + 1 + j, c], inputs before a document being its state, or zero.
// The state [slots, taps - 1, c] holds the last taps - 1 inputs of a sequence; it is changed in place, an empty
// document's is not.
#pragma once
#include "element_kernel.h"

namespace kb::cpu {
struct ShortConvKernel {
  KB_CPU_HEAD(ShortConv);
  static void supports(const Call& c, const Op&) { refuse_bf16(c); }
  static uint64_t workspace(const Call& c, const Op& o);
};
struct ShortConvBackwardKernel {
  KB_CPU_HEAD(ShortConvBackward);
  static constexpr uint32_t accumulates = 2;  // dw
  static void supports(const Call& c, const Op&) { refuse_bf16(c); }
  static uint64_t workspace(const Call& c, const Op& o);
};
}  // namespace kb::cpu

#define KB_CONV_KERNELS kernel<kb::cpu::ShortConvKernel>(), kernel<kb::cpu::ShortConvBackwardKernel>()
