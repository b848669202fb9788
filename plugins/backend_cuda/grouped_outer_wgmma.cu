// `grouped_outer` of bf16 operands: both lie with their rows, the axis that is summed over, outermost.
#include "grouped_kernel.cuh"

namespace kb::cuda {
namespace {

GroupedKernel kernel(bool to_f32, int cols) {
  return to_f32 ? kernel_of<true, true, true, float>(cols) : kernel_of<true, true, true, __nv_bfloat16>(cols);
}

}  // namespace

cudaError_t prepare_grouped_outer_wgmma(bool to_f32, int cols) { return prepare(kernel(to_f32, cols)); }

cudaError_t grouped_outer_wgmma(const OuterShape& s, bool to_f32, const GroupedMaps& m, const int32_t* offsets, void* y,
                                int multiprocessors, cudaStream_t stream) {
  if (s.experts * s.o * s.i == 0) return cudaSuccess;
  GroupedWork g{};
  g.offsets = offsets, g.y = y, g.experts = int(s.experts), g.add = s.add;
  g.m = int(s.o), g.n = int(s.i);
  return launch(kernel(to_f32, m.cols), g, m, multiprocessors, stream);
}

}  // namespace kb::cuda
