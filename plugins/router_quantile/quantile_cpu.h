// quantile_cpu.h: the CPU kernels of quantile balancing. All are deterministic: threads share experts or rows out,
// never sums.
#pragma once
#include "quantile_ops.h"

template <class O, uint32_t kTyped>  // kTyped: the input whose float type the kernel follows
struct QuantileKernel {
  using Op = O;
  static constexpr const char* name = "loop";
  static constexpr int device = KB_CPU;
  static void supports(const kb::Call& c, const O&) {
    kb::floats(c.in(kTyped).dtype, []<class T>() {});
  }
};

struct QuantileCountCpu : QuantileKernel<QuantileCount, 1> {
  static void launch(const kb::Call& c, const QuantileCount& op);
};
struct QuantileEstimateCpu : QuantileKernel<QuantileEstimate, 1> {
  static uint64_t workspace(const kb::Call& c, const QuantileEstimate&) { return uint64_t(c.dim(0, 0)) * 8; }
  static void launch(const kb::Call& c, const QuantileEstimate& op);
};
struct QuantileAppendCpu : QuantileKernel<QuantileAppend, 2> {
  static uint64_t workspace(const kb::Call& c, const QuantileAppend&) { return uint64_t(c.dim(2, 0)) * 4; }
  static void launch(const kb::Call& c, const QuantileAppend& op);
};
struct QuantileExactCpu : QuantileKernel<QuantileExact, 0> {
  // An estimate an expert, then one column of margins a thread.
  static uint64_t workspace(const kb::Call& c, const QuantileExact&) {
    return uint64_t(c.dim(0, 1)) * 8 + uint64_t(c.threads()) * uint64_t(c.dim(0, 0)) * 8;
  }
  static void launch(const kb::Call& c, const QuantileExact& op);
};
struct ExpertLoadCpu {
  using Op = ExpertLoad;
  static constexpr const char* name = "loop";
  static constexpr int device = KB_CPU;
  static void launch(const kb::Call& c, const ExpertLoad& op);
};
