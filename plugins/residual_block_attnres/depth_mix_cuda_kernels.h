// depth_mix_cuda_kernels.h: the CUDA kernels of depth_mix as the core sees them.
#pragma once
#include "depth_mix.h"

struct DepthMixCuda {
  using Op = DepthMix;
  static constexpr const char* name = "ring";
  static constexpr int device = KB_CUDA;
  static void supports(const kb::Call& c, const Op&);
  static void launch(const kb::Call& c, const Op& op);
};

struct DepthMixBackwardCuda {
  using Op = DepthMixBackward;
  static constexpr const char* name = "ring";
  static constexpr int device = KB_CUDA;
  static constexpr uint32_t accumulates = (1u << KB_MAX_OUT) - 1;
  static void supports(const kb::Call& c, const Op&);
  static uint64_t workspace(const kb::Call& c, const Op&);  // a sum of norm * query's gradient for each block
  static void launch(const kb::Call& c, const Op& op);
};
