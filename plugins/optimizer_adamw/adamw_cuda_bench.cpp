// Time of a step as training takes it, with scale and bf16 copy, against the 30 bytes an element that have to move at 4.2 TB/s.
#include <cstdio>

#include "adamw_cuda_kernels.h"
#include "tests/support/device_call.h"

int main() {
  if (!kbtest::have_device()) return puts("there is no CUDA device"), 0;
  for (int64_t n : {int64_t(1) << 14, int64_t(1) << 24, int64_t(46137344)}) {
    kbtest::Array w = kbtest::array(KB_F32, {n});
    uint32_t x = 1;
    for (int64_t i = 0; i < n; ++i) w.data<float>()[i] = float(int32_t(x = x * 1664525u + 1013904223u)) * 1e-9f;
    kbtest::Array v = w;
    for (int64_t i = 0; i < n; ++i) v.data<float>()[i] *= v.data<float>()[i];
    const kbtest::Array rate = kbtest::array(KB_F32, {}, {1e-3}), count = kbtest::array(KB_F32, {}, {5}),
                        scale = kbtest::array(KB_F32, {}, {0.5});
    const AdamwStep op;
    kbtest::DeviceCall call(
        kb::kernel_table<AdamwCuda>(),
        {kb::default_attr("beta1", op.beta1), kb::default_attr("beta2", op.beta2), kb::default_attr("eps", op.eps),
         kb::default_attr("decay", op.decay), kb::default_attr("copy", int64_t(KB_BF16))},
        {&w, &w, &w, &v, &rate, &count, &scale}, {w, w, v, kbtest::array(KB_BF16, {n})});
    const double ms = kbtest::median_ms([&] { call.launch(); }, 20, 3, true), floor = 30 * double(n) / 4.2e9;
    printf("adamw_step n=%lld: %.4f ms, %.0f GB/s, floor %.4f ms (%.0f %%)\n", static_cast<long long>(n), ms,
           30 * double(n) / ms * 1e-6, floor, 100 * floor / ms);
  }
}
