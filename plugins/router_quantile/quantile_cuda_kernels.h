// quantile_cuda_kernels.h: the CUDA kernels of quantile balancing as the core sees them. Scores, cutoff and bias are f32.
#pragma once
#include "quantile_ops.h"

template <class O, uint32_t kTyped>  // kTyped: the input whose float type must be f32
struct QuantileKernelCuda {
  using Op = O;
  static constexpr const char* name = "histogram";
  static constexpr int device = KB_CUDA;
  static void supports(const kb::Call& c, const O&) {
    if (c.in(kTyped).dtype != KB_F32)
      kb::fail("has no kernel for ", kb::dtype_name(c.in(kTyped).dtype),
               " on CUDA; compute in f32 or bf16, or run on the cpu");
  }
};

struct QuantileCountCuda : QuantileKernelCuda<QuantileCount, 1> {
  static void launch(const kb::Call& c, const QuantileCount& op);
};
struct QuantileEstimateCuda : QuantileKernelCuda<QuantileEstimate, 1> {
  static uint64_t workspace(const kb::Call& c, const QuantileEstimate&) { return uint64_t(c.dim(0, 0)) * 8; }
  static void launch(const kb::Call& c, const QuantileEstimate& op);
};
struct QuantileAppendCuda : QuantileKernelCuda<QuantileAppend, 2> {
  static uint64_t workspace(const kb::Call& c, const QuantileAppend&) { return uint64_t(c.dim(2, 0)) * 4; }
  static void launch(const kb::Call& c, const QuantileAppend& op);
};
struct QuantileExactCuda : QuantileKernelCuda<QuantileExact, 0> {
  static uint64_t workspace(const kb::Call& c, const QuantileExact&) { return uint64_t(c.dim(0, 1)) * 8; }
  static void launch(const kb::Call& c, const QuantileExact& op);
};
struct ExpertLoadCuda {
  using Op = ExpertLoad;
  static constexpr const char* name = "histogram";
  static constexpr int device = KB_CUDA;
  static void launch(const kb::Call& c, const ExpertLoad& op);
};
