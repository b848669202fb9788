// The short convolution: packings, taps, states and slots against the plain loops.
#include "conv_kernels.h"
#include "elements_test.h"

using namespace elements_test;
using namespace kb::cuda::element;

namespace {

const std::vector<std::vector<double>>& packings() {
  static const std::vector<std::vector<double>> p = {{0, 1},   {0, 2, 2, 3, 65}, {0, 1, 2, 4, 7, 12, 300},
                                                     {0, 700}, {0, 0, 5, 5},     {0, 33, 34, 66, 129}};
  return p;
}

TEST(CudaShortConv, AgreesWithTheReferenceOverPackingsTapsAndStates) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : kTypes)
    for (const auto& p : packings())
      for (int64_t n : {1, 3, 8, 64, 65, 1000})
        for (int64_t taps : {1, 2, 4, 5})
          for (int mode : {0, 1, 2}) {  // without a state; with one; with slots in another order
            const int64_t T = int64_t(p.back()), docs = int64_t(p.size()) - 1;
            if (T * n > 50000 && (taps != 4 || mode == 1)) continue;
            if (taps == 1 && mode) continue;
            const Array x = normal(dtype, {T + 3, n}, 1), w = normal(mode ? dtype : uint32_t(KB_F32), {n, taps}, 2),
                        cu = array(KB_I32, {docs + 1}, p);
            Array slot = kbtest::absent(), state = kbtest::absent();
            if (mode) state = normal(dtype, {docs + 2, taps - 1, n}, 3);
            if (mode == 2) {
              slot = array(KB_I32, {docs});
              for (int64_t d = 0; d < docs; ++d) slot.set(d, double(docs + 1 - d));
            }
            std::vector<Array> out{array(dtype, {T + 3, n})};
            if (mode) out.push_back(state);
            Array want = out[0], want_state = state;
            reference::short_conv(x, w, cu, want_state, slot, want);
            std::vector<const Array*> in = {&x, &w, &cu};
            if (mode) in.push_back(&state);
            if (mode == 2) in.push_back(&slot);
            run_device(kb::kernel_table<ShortConvKernel>(), {}, in, out);
            ASSERT_LE(error("short_conv", out[0], want), tolerance(dtype))
                << T << " " << n << " " << taps << " " << mode;
            if (mode) {
              ASSERT_EQ(out[1].bytes, want_state.bytes) << T << " " << n << " " << taps;
            }
          }
}

// As the host binds it: the state is changed where it lies.
TEST(CudaShortConv, ChangesItsStateInPlace) {
  KB_NEEDS_DEVICE();
  const int64_t n = 24, T = 7;
  const Array x = normal(KB_BF16, {T, n}, 1), w = normal(KB_BF16, {n, 4}, 2), state = normal(KB_BF16, {3, 3, n}, 3),
              cu = array(KB_I32, {4}, {0, 1, 3, 7});
  Array want_state = state, want = x;
  reference::short_conv(x, w, cu, want_state, kbtest::absent(), want);
  std::vector<std::unique_ptr<kbtest::DeviceBytes>> memory;
  std::vector<kb_tensor> in;
  for (const Array* a : {&x, &w, &cu, &state}) {
    memory.push_back(std::make_unique<kbtest::DeviceBytes>(a->bytes.size()));
    memory.back()->from(a->bytes.data());
    in.push_back({memory.back()->data(), a->type, {}});
  }
  kbtest::DeviceBytes y(want.bytes.size());
  const kb_tensor out[2] = {{y.data(), want.type, {}}, in[3]};
  kb_call c{};
  c.struct_size = KB_STRUCT_SIZE(kb_call, device);
  c.in = in.data(), c.n_in = 4, c.out = out, c.n_out = 2;
  c.device = &kbtest::cuda_device();
  KB_CUDA_OK(cudaDeviceSynchronize());
  kb_error e{};
  ASSERT_EQ(kb::kernel_table<ShortConvKernel>()->launch(nullptr, &c, &e), 0) << e.message;
  KB_CUDA_OK(cudaDeviceSynchronize());
  Array got = want, got_state = state;
  y.to(got.bytes.data());
  memory[3]->to(got_state.bytes.data());
  EXPECT_LE(error("short_conv", got, want), tolerance(KB_BF16));
  EXPECT_EQ(got_state.bytes, want_state.bytes);
}

TEST(CudaShortConvBackward, AgreesWithTheReferenceAndAccumulates) {
  KB_NEEDS_DEVICE();
  for (uint32_t dtype : kTypes)
    for (const auto& p : packings())
      for (int64_t n : {1, 3, 8, 64, 65, 600})
        for (int64_t taps : {1, 2, 4, 5}) {
          const int64_t T = int64_t(p.back());
          const Array x = normal(dtype, {T + 2, n}, 1), w = normal(dtype, {n, taps}, 2),
                      dy = normal(dtype, {T + 2, n}, 3);
          const Array cu = array(KB_I32, {int64_t(p.size())}, p);
          std::vector<Array> d{array(dtype, {T + 2, n}), array(dtype, {n, taps})};
          Array want_dx = d[0], want_dw = d[1];
          reference::short_conv_backward(x, w, cu, dy, want_dx, want_dw);
          run_device(kb::kernel_table<ShortConvBackwardKernel>(), {}, {&x, &w, &cu, &dy}, d);
          ASSERT_LE(error("short_conv dx", d[0], want_dx), tolerance(dtype)) << T << " " << n << " " << taps;
          ASSERT_LE(error("short_conv dw", d[1], want_dw), 2 * tolerance(dtype)) << T << " " << n << " " << taps;
          std::vector<Array> again{d[0], d[1]};
          run_device(kb::kernel_table<ShortConvBackwardKernel>(), {}, {&x, &w, &cu, &dy}, again, {{}, 2, 1});
          for (int64_t i = 0; i < n * taps; ++i)
            ASSERT_NEAR(again[1].at(i), 2 * d[1].at(i),
                        (dtype == KB_F32 ? 1e-5 : 2e-2) * std::fabs(d[1].at(i)) + 1e-12);
        }
}

TEST(CudaShortConv, TakesTheDocumentsInUse) {
  KB_NEEDS_DEVICE();
  const Array x = normal(KB_F32, {10, 8}, 1), w = normal(KB_F32, {8, 4}, 2);
  Array cu = array(KB_I32, {6}, {0, 4, 9, 0, 0, 0});
  const Array cut = array(KB_I32, {3}, {0, 4, 9});
  cu.type.extent = 1;
  std::vector<Array> y{x}, want{x};
  Array none = kbtest::absent();
  want[0] = array(KB_F32, {10, 8});
  reference::short_conv(x, w, cut, none, none, want[0]);
  run_device(kb::kernel_table<ShortConvKernel>(), {}, {&x, &w, &cu}, y, {{0, 3}});
  EXPECT_LE(error("short_conv", y[0], want[0]), tolerance(KB_F32));
}

}  // namespace
