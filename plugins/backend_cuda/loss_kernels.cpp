#include "loss_kernels.h"

#include "loss_cuda.h"

namespace kb::cuda::element {
namespace {

LossRows rows(const Call& c) {
  return {c.get<void>(0),
          c.in(0).dtype,
          c.dim(0, 0),
          c.dim(0, 1),
          c.get<int32_t>(1),
          c.has(2) ? c.get<float>(2) : nullptr,
          rows_in_use(c, c.in(0))};
}

}  // namespace

void CrossEntropyKernel::supports(const Call& c, const Op&) {
  takes(c, {kFloats, kIds, kWide}), gives(c, {kWide, kWide});
  if (c.dim(0, 0) > INT32_MAX) fail("rows must be numbered by i32");
}
uint64_t CrossEntropyKernel::workspace(const Call& c, const Op&) { return uint64_t(c.dim(0, 0)) * sizeof(float); }
void CrossEntropyKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0) && !c.wanted(1)) return;
  cross_entropy(rows(c), c.put<float>(0), c.put<float>(1), c.workspace<float>(), stream(c));
  launched();
}

void CrossEntropyBackwardKernel::supports(const Call& c, const Op&) {
  takes(c, {kFloats, kIds, kWide, kWide, kWide}), gives(c, {one(c.in(0).dtype)});
  if (c.dim(0, 0) > INT32_MAX) fail("rows must be numbered by i32");
}
void CrossEntropyBackwardKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  cross_entropy_backward(rows(c), c.get<float>(3), c.get<float>(4), c.put<void>(0), stream(c));
  launched();
}

}  // namespace kb::cuda::element
