// `grouped_linear` in bf16: rows by the weights of their expert, which lie as [out, in] or, turned, [in, out].
#include "grouped_kernel.cuh"

namespace kb::cuda {
namespace {

GroupedKernel kernel(bool tw, int cols) {
  return tw ? kernel_of<false, false, false, __nv_bfloat16>(cols) : kernel_of<false, true, false, __nv_bfloat16>(cols);
}

}  // namespace

cudaError_t prepare_grouped_linear_wgmma(bool tw, int cols) { return prepare(kernel(tw, cols)); }

cudaError_t grouped_linear_wgmma(const LinearShape& s, const GroupedMaps& m, const int32_t* offsets, void* y,
                                 int multiprocessors, cudaStream_t stream) {
  if (s.rows * s.out == 0) return cudaSuccess;
  GroupedWork g{};
  g.offsets = offsets, g.y = y, g.experts = int(s.experts), g.add = s.add;
  g.rows = int(s.rows), g.n = int(s.out), g.k_blocks = int((s.in + kBoxSide - 1) / kBoxSide);
  return launch(kernel(s.tw, m.cols), g, m, multiprocessors, stream);
}

}  // namespace kb::cuda
