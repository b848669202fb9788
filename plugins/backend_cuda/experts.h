// experts.h: tokens to experts and back. source [rows]: flat index into ids [tokens, active], or -1 for padding.
#pragma once
#include "kitbash/op.h"
#include "kitbash/ops.h"

namespace kb::cuda {

struct ExpertSortKernel {  // ids outside [0, experts) are left out: the device cannot refuse them in words
  using Op = ops::ExpertSort;
  static constexpr const char* name = "expert_sort.cuda";
  static constexpr uint32_t device = KB_CUDA;
  static void supports(const Call& c, const Op& o);
  static uint64_t workspace(const Call& c, const Op& o);
  static void launch(const Call& c, const Op& o);
};
struct DispatchKernel {
  using Op = ops::Dispatch;
  static constexpr const char* name = "dispatch.cuda";
  static constexpr uint32_t device = KB_CUDA;
  static void supports(const Call& c, const Op& o);
  static void launch(const Call& c, const Op& o);
};
struct CombineKernel {  // a token's rows are added in fp32 by rising choice
  using Op = ops::Combine;
  static constexpr const char* name = "combine.cuda";
  static constexpr uint32_t device = KB_CUDA;
  static void supports(const Call& c, const Op& o);
  static uint64_t workspace(const Call& c, const Op& o);
  static void launch(const Call& c, const Op& o);
};

}  // namespace kb::cuda
