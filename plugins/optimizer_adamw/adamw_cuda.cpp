// The CUDA kernel of an AdamW step as a table.
#include "adamw_cuda.h"

#include "adamw_cuda_kernels.h"

void AdamwCuda::supports(const kb::Call& c, const AdamwStep&) {
  if (c.in(0).dtype != KB_F32)
    kb::fail("has no kernel for ", kb::dtype_name(c.in(0).dtype),
             " on CUDA; compute in f32 or bf16, or run on the cpu");
}

void AdamwCuda::launch(const kb::Call& c, const AdamwStep& op) {
  adamw_cuda::Step a{};
  a.w = c.get<float>(0), a.g = c.get<float>(1), a.m = c.get<float>(2), a.v = c.get<float>(3);
  a.lr = c.get<float>(4), a.step = c.get<float>(5);
  a.w2 = c.put<float>(0), a.m2 = c.put<float>(1), a.v2 = c.put<float>(2);
  if (!a.w2 || !a.m2 || !a.v2) kb::fail("w, m and v are one step: all three outputs must be wanted");
  a.scale = c.has(6) ? c.get<float>(6) : nullptr;
  a.copy = op.copy ? c.put<void>(3) : nullptr;
  a.n = kb::elements(c.in(0));
  a.log_beta1 = std::log(op.beta1), a.log_beta2 = std::log(op.beta2);
  a.beta1 = float(op.beta1), a.beta2 = float(op.beta2);
  a.keep1 = float(1 - op.beta1), a.keep2 = float(1 - op.beta2);
  a.eps = float(op.eps), a.decay = float(op.decay);
  const cudaError_t e = adamw_cuda::step(a, static_cast<cudaStream_t>(c.c->device->stream));
  if (e != cudaSuccess) kb::fail("the CUDA kernel of adamw_step must launch but got: ", cudaGetErrorString(e));
}
