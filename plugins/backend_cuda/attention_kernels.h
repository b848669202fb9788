// attention_kernels.h: declares the attention kernels and lists them for backend.cpp.
#pragma once
#include <memory>

#include "kitbash/op.h"
#include "kitbash/ops.h"

namespace kb::cuda {

// f32 (true fp32) and bf16, any widths up to 256, any documents; the same bits every run. Any output may be unwanted.
struct Attention {
  using Op = ops::Attention;
  static constexpr const char* name = "attention.cuda";
  static constexpr uint32_t device = KB_CUDA;
  static void supports(const Call& c, const Op& op);
  static uint64_t workspace(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op);
};
struct AttentionBackward {
  using Op = ops::AttentionBackward;
  static constexpr const char* name = "attention_backward.cuda";
  static constexpr uint32_t device = KB_CUDA;
  static void supports(const Call& c, const Op& op);
  static uint64_t workspace(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op);
};

// The same for sm_90a: bf16, widths 192/128, 128/128 and 64/64.
struct AttentionWgmmaPlan;
struct AttentionWgmmaState {
  AttentionWgmmaState();
  ~AttentionWgmmaState();
  std::unique_ptr<AttentionWgmmaPlan> state;
};
struct AttentionWgmma {
  using Op = ops::Attention;
  using Plan = AttentionWgmmaState;
  static constexpr const char* name = "attention.wgmma";
  static constexpr uint32_t device = KB_CUDA, arch_min = 90, arch_max = 90;
  static constexpr int32_t priority = 5;
  static void supports(const Call& c, const Op& op);
  static uint64_t workspace(const Call& c, const Op& op);
  static std::unique_ptr<Plan> prepare(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op, Plan& plan);
};
struct AttentionBackwardWgmma {
  using Op = ops::AttentionBackward;
  using Plan = AttentionWgmmaState;
  static constexpr const char* name = "attention_backward.wgmma";
  static constexpr uint32_t device = KB_CUDA, arch_min = 90, arch_max = 90;
  static constexpr int32_t priority = 5;
  static void supports(const Call& c, const Op& op);
  static uint64_t workspace(const Call& c, const Op& op);
  static std::unique_ptr<Plan> prepare(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op, Plan& plan);
};

struct AttentionCached {  // f32 and bf16, keys up to 4096 channels, values of any width
  using Op = ops::AttentionCached;
  static constexpr const char* name = "attention_cached.cuda";
  static constexpr uint32_t device = KB_CUDA;
  static void supports(const Call& c, const Op& op);
  static uint64_t workspace(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op);
};
struct CacheAppend {  // in place: only the new rows are written
  using Op = ops::CacheAppend;
  static constexpr const char* name = "cache_append.cuda";
  static constexpr uint32_t device = KB_CUDA;
  static void supports(const Call& c, const Op& op);
  static void launch(const Call& c, const Op& op);
};

}  // namespace kb::cuda

// Comma-separated kernel<kb::cuda::X>(), as in plugins/backend_cpu/kernels.h.
#define KB_CUDA_ATTENTION_KERNELS                                                                            \
  kernel<kb::cuda::Attention>(), kernel<kb::cuda::AttentionBackward>(), kernel<kb::cuda::AttentionCached>(), \
      kernel<kb::cuda::AttentionWgmma>(), kernel<kb::cuda::AttentionBackwardWgmma>(), kernel<kb::cuda::CacheAppend>()
