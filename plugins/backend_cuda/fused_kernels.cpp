#include "fused_kernels.h"

#include "fused_source.h"
#include "nvrtc_library.h"

namespace kb::cuda {

void FusedKernel::supports(const Call& c, const Op& o) {
  if (!nvrtc_missing().empty()) fail(nvrtc_missing());
  for (uint32_t i = 0; i < c.n_in(); ++i)
    if (const uint32_t t = c.in(i).dtype; t != KB_F32 && t != KB_BF16 && t != KB_I32)
      fail("operands must be f32, bf16 or i32 but operand ", i, " is ", dtype_name(t));
  for (uint32_t i = 0; i < c.n_out(); ++i)
    if (const uint32_t t = c.out(i).dtype; t != KB_F32 && t != KB_BF16)
      fail("results must be f32 or bf16 but result ", i, " is ", dtype_name(t));
  FusedProgram::from(o.program);
}

std::unique_ptr<FusedKernel::Plan> FusedKernel::prepare(const Call& c, const Op& o) {
  std::vector<uint32_t> in, out;
  for (uint32_t i = 0; i < c.n_in(); ++i) in.push_back(c.in(i).dtype);
  for (uint32_t i = 0; i < c.n_out(); ++i) out.push_back(c.out(i).dtype);
  const FusedProgram p = FusedProgram::from(o.program);
  const FusedSource s = fused_source(p, in, out, p.elements >= int64_t(1) << 31);
  auto plan = std::make_unique<Plan>();
  plan->elements = p.elements;
  plan->per_block = s.row ? kFusedThreads / s.lanes * s.row : int64_t(kFusedThreads) * s.unit;
  plan->unit = s.unit, plan->in_units = s.in_units;
  plan->code = compile(s.text, c.c->device->arch);
  return plan;
}

void FusedKernel::launch(const Call& c, const Op&, Plan& plan) {
  if (!plan.kernel) plan.kernel = plan.code.get()->kernel("fused");
  int64_t n = plan.elements;
  if (!n) return;
  std::vector<const void*> pointers;
  uintptr_t address = 0;  // bits that any operand's address in units has
  const auto add = [&](const void* p, uint32_t dtype, bool units) {
    pointers.push_back(p);
    const uintptr_t width = uintptr_t(plan.unit) * (dtype == KB_BF16 ? 2 : 4);
    if (units) address |= reinterpret_cast<uintptr_t>(p) & (std::min<uintptr_t>(width, 16) - 1);
  };
  for (uint32_t i = 0; i < c.n_in(); ++i) add(c.get<void>(i), c.in(i).dtype, plan.in_units[i]);
  for (uint32_t o = 0; o < c.n_out(); ++o) add(c.put<void>(o), c.out(o).dtype, elements(c.out(o)) == n);
  int vector = address == 0;
  std::vector<void*> arguments;
  for (const void*& p : pointers) arguments.push_back(&p);
  arguments.push_back(&n), arguments.push_back(&vector);
  const int64_t blocks = (n + plan.per_block - 1) / plan.per_block;
  const cudaError_t e = cudaLaunchKernel(plan.kernel, dim3(unsigned(blocks)), dim3(kFusedThreads), arguments.data(), 0,
                                         static_cast<cudaStream_t>(c.c->device->stream));
  if (e != cudaSuccess) fail("must launch but got: ", cudaGetErrorString(e));
}

}  // namespace kb::cuda
