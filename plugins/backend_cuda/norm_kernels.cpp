#include "norm_kernels.h"

#include "norm_cuda.h"
#include "reduce_cuda.h"

namespace kb::cuda::element {
namespace {

NormSizes sizes(const Call& c, double eps) {
  const int64_t n = c.dim(0, -1);
  return {n ? elements(c.in(0)) / n : 0, n, c.in(0).dtype, c.in(1).dtype, float(eps)};
}
void fits(const Call& c) {
  if (c.in(0).rank < 1) fail("x must have rank 1 or more");
  const int64_t n = c.dim(0, -1);
  if (elements(c.in(1)) != n) fail("w must have ", n, " elements but got ", elements(c.in(1)));
  if (!norm_fits(c.in(0).dtype, n))
    fail("rows must have at most 16384 elements, or 4096 where they are no multiple of 16 bytes, on cuda but got ", n);
}

}  // namespace

void RmsNormKernel::supports(const Call& c, const Op&) {
  takes(c, {kFloats, kFloats}), gives(c, {one(c.in(0).dtype)});
  fits(c);
}
void RmsNormKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  check(rms_norm(sizes(c, o.eps), c.get<void>(0), c.get<void>(1), c.put<void>(0), stream(c)), "rms_norm");
}

void RmsNormBackwardKernel::supports(const Call& c, const Op&) {
  const uint32_t x = one(c.in(0).dtype);
  takes(c, {kFloats, kFloats, x}), gives(c, {x, kFloats});
  fits(c);
}
// Partial sums of dw, and the room to add them.
uint64_t RmsNormBackwardKernel::workspace(const Call& c, const Op& o) {
  const NormSizes z = sizes(c, o.eps);
  const int64_t parts = norm_parts(z);
  return uint64_t(padded(parts * z.n) + reduce_room({1, parts, z.n})) * sizeof(float);
}
void RmsNormBackwardKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0) && !c.wanted(1)) return;
  const NormSizes z = sizes(c, o.eps);
  const int64_t parts = norm_parts(z);
  float* part = c.wanted(1) ? c.workspace<float>() : nullptr;
  check(rms_norm_backward(z, c.get<void>(0), c.get<void>(1), c.get<void>(2), c.put<void>(0), part, stream(c)),
        "rms_norm_backward");
  if (part)
    reduce_middle(Reduction::sum, part, KB_F32, {1, parts, z.n}, {}, c.put<void>(1), c.out(1).dtype, c.adds(1),
                  part + padded(parts * z.n), stream(c));
  launched();
}

}  // namespace kb::cuda::element
