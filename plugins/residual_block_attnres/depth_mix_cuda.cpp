// The CUDA kernels of depth_mix as tables: f32 and bf16 sources; norm, query and weights f32.
#include "depth_mix_cuda.h"

#include "depth_mix_cuda_kernels.h"

namespace {

void check(cudaError_t e, const char* op) {
  if (e != cudaSuccess) kb::fail("the CUDA kernel of ", op, " must launch but got: ", cudaGetErrorString(e));
}
void narrow_or_f32(uint32_t dtype) {
  if (dtype != KB_F32 && dtype != KB_BF16)
    kb::fail("has no kernel for ", kb::dtype_name(dtype), " on CUDA; compute in f32 or bf16, or run on the cpu");
}
bool is_bf16(const kb::Call& c) { return c.in(0).dtype == KB_BF16; }

void fill(depth_mix_cuda::Problem& a, const kb::Call& c, uint32_t n, double eps) {
  for (uint32_t i = 0; i < n; ++i) a.v[i] = c.get<void>(i);
  a.n = int(n), a.tokens = c.dim(0, 0), a.d = c.dim(0, 1), a.eps = float(eps);
  a.norm = c.get<float>(n), a.query = c.get<float>(n + 1);
  if (c.in(0).extent && c.c->extents) a.used = c.c->extents + c.in(0).extent;  // read by the kernel
}
cudaStream_t stream(const kb::Call& c) { return static_cast<cudaStream_t>(c.c->device->stream); }

}  // namespace

void DepthMixCuda::launch(const kb::Call& c, const DepthMix& op) {
  depth_mix_cuda::Forward a{};
  fill(a, c, c.n_in() - 2, op.eps);
  a.h = c.put<void>(0), a.p = c.put<float>(1);
  check(depth_mix_cuda::forward(a, is_bf16(c), stream(c)), name);
}
void DepthMixCuda::supports(const kb::Call& c, const DepthMix&) { narrow_or_f32(c.in(0).dtype); }

void DepthMixBackwardCuda::supports(const kb::Call& c, const DepthMixBackward&) { narrow_or_f32(c.in(0).dtype); }
uint64_t DepthMixBackwardCuda::workspace(const kb::Call& c, const DepthMixBackward&) {
  return uint64_t(depth_mix_cuda::backward_layout(int(c.n_in()) - 3, c.dim(0, 1), is_bf16(c)).blocks) *
         uint64_t(c.dim(0, 1)) * 4;
}
void DepthMixBackwardCuda::launch(const kb::Call& c, const DepthMixBackward& op) {
  const uint32_t n = c.n_in() - 3;
  depth_mix_cuda::Backward a{};
  fill(a, c, n, op.eps);
  a.dh = c.get<void>(n + 2);
  for (uint32_t i = 0; i < n; ++i) {
    a.dv[i] = c.put<void>(i);
    if (c.adds(i)) a.add |= 1u << i;
  }
  a.dnorm = c.put<float>(n), a.dquery = c.put<float>(n + 1);
  a.add_norm = c.adds(n), a.add_query = c.adds(n + 1);
  a.partial = c.workspace<float>();
  check(depth_mix_cuda::backward(a, is_bf16(c), stream(c)), name);
}
