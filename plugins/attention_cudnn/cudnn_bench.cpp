// bench_attention_cudnn: cuDNN's attention on the shapes of bench_backend_cuda_attention, its backward in any order of sums and
// in a fixed one.
#include "kernels.h"
#include "tests/support/attention_shapes.h"

int main() {
  if (!kbtest::have_device()) {
    std::printf("there is no CUDA device\n");
    return 0;
  }
  for (const auto& s : kb::attention_bench::shapes()) {
    kb::attention_bench::Problem p(s);
    const kb_kernel *forward = kb::kernel_table<kb::cudnn::Attention>(),
                    *backward = kb::kernel_table<kb::cudnn::AttentionBackward>();
    p.time_forward(forward);
    try {
      p.run(forward);
    } catch (const std::exception& e) {
      std::printf("%s\n", e.what());
      continue;
    }
    kbtest::Options any;
    any.deterministic = false;
    p.time_backward(backward, 3, 2, any);
    p.time_backward(backward);
  }
}
