// fused_kernels.h: the kernel of the op "fused", which is compiled for each program that a node has.
#pragma once
#include "compiled.h"
#include "kitbash/fused.h"
#include "kitbash/op.h"
#include "kitbash/ops.h"

namespace kb::cuda {

struct FusedKernel {
  using Op = ops::Fused;
  static constexpr const char* name = "nvrtc";
  static constexpr uint32_t device = KB_CUDA;
  struct Plan {
    Compiling code;
    const void* kernel = nullptr;  // once loaded
    int unit = 1;
    int64_t elements = 0, per_block = 1;
    std::vector<char> in_units;
    // No compilation outlives the programs that want it: at the end of the process the compiler's own data goes away.
    ~Plan() {
      if (!kernel && code.valid()) code.wait();
    }
  };
  static void supports(const Call& c, const Op& o);
  static std::unique_ptr<Plan> prepare(const Call& c, const Op& o);  // starts the compilation
  static void launch(const Call& c, const Op& o, Plan& plan);        // the first one waits for it
};

#define KB_CUDA_FUSED_KERNELS kernel<kb::cuda::FusedKernel>()

}  // namespace kb::cuda
