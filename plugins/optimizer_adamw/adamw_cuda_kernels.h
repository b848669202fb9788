// adamw_cuda_kernels.h: the CUDA kernel of an AdamW step as the core sees it.
#pragma once
#include "adamw_step.h"

struct AdamwCuda {
  using Op = AdamwStep;
  static constexpr const char* name = "one_pass";
  static constexpr int device = KB_CUDA;
  static void supports(const kb::Call& c, const AdamwStep&);
  static void launch(const kb::Call& c, const AdamwStep& op);
};
