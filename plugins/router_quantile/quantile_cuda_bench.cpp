// Times of the kernels that run in every micro-batch, and of those of a step.
#include <cstdio>

#include "quantile_cuda_kernels.h"
#include "tests/support/device_call.h"

namespace {
using kbtest::Array;

void print(const char* what, int64_t tokens, int64_t experts, double ms, double bytes) {
  printf("%s tokens=%lld experts=%lld: %.4f ms, floor %.4f ms\n", what, static_cast<long long>(tokens),
         static_cast<long long>(experts), ms, bytes / 4.2e9);
}
double timed(const kb_kernel* k, const std::vector<kb_attr>& attrs, const std::vector<const Array*>& in,
             const std::vector<Array>& out) {
  kbtest::DeviceCall call(k, attrs, in, out);
  return kbtest::median_ms([&] { call.launch(); }, 20, 3, true);
}

}  // namespace

int main() {
  if (!kbtest::have_device()) return puts("there is no CUDA device"), 0;
  const int64_t tokens = 32768, bins = 1000, active = 8;
  for (int64_t experts : {64, 896}) {
    Array scores = kbtest::array(KB_F32, {tokens, experts}), cutoff = kbtest::array(KB_F32, {tokens, 1});
    std::mt19937 r(1);
    for (int64_t i = 0; i < scores.size(); ++i) {  // as many near the middle as a sigmoid of normal numbers has
      const double x = double(r()) / 4294967296.0 + double(r()) / 4294967296.0;
      scores.set(i, x / 2);
    }
    for (int64_t t = 0; t < tokens; ++t) cutoff.set(t, 0.7);
    const Array document = kbtest::array(KB_I32, {tokens}), bias = kbtest::normal(KB_F32, {experts}, 5, 0.1);
    const Array counts = kbtest::array(KB_I32, {experts, bins}), load = kbtest::array(KB_I32, {experts});
    Array ids = kbtest::array(KB_I32, {tokens, active});
    for (int64_t i = 0; i < ids.size(); ++i) ids.set(i, double(r() % uint32_t(experts)));
    const std::vector<kb_attr> attrs{kb::default_attr("active", active), kb::default_attr("ema", 0.0)};
    print("quantile_count", tokens, experts,
          timed(kb::kernel_table<QuantileCountCuda>(), {}, {&counts, &scores, &cutoff, &document, &bias}, {counts}),
          double(scores.bytes.size()));
    print("quantile_estimate", tokens, experts,
          timed(kb::kernel_table<QuantileEstimateCuda>(), attrs, {&counts, &bias}, {bias}),
          double(counts.bytes.size()));
    print("expert_load", tokens, experts,
          timed(kb::kernel_table<ExpertLoadCuda>(), {}, {&load, &ids, &document}, {load}), double(ids.bytes.size()));
    const Array filled = kbtest::array(KB_I32, {1}, {double(tokens)}), none = kbtest::array(KB_I32, {1});
    print("quantile_append", tokens, experts,
          timed(kb::kernel_table<QuantileAppendCuda>(), {}, {&scores, &none, &scores, &cutoff, &document},
                {scores, none}),
          double(scores.bytes.size()) * 2);
    print("quantile_exact", tokens, experts,
          timed(kb::kernel_table<QuantileExactCuda>(), attrs, {&scores, &filled, &filled, &bias}, {bias}),
          double(scores.bytes.size()));
  }
}
