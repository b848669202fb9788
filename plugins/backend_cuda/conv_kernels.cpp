#include "conv_kernels.h"

#include "conv_cuda.h"
#include "reduce_cuda.h"

namespace kb::cuda::element {
namespace {

constexpr int64_t kMostTaps = 64;

ConvSizes sizes(const Call& c) { return {c.dim(0, 0), c.dim(0, 1), c.dim(1, 1), c.in(0).dtype, c.in(1).dtype}; }
Documents documents(const Call& c) {
  const kb_type& t = c.in(2);
  return {c.get<int32_t>(2), std::max<int64_t>(0, t.shape[0] - 1), rows_in_use(c, t)};
}
void fits(const Call& c) {
  const ConvSizes z = sizes(c);
  if (c.dim(1, 0) != z.channels) fail("w must have ", z.channels, " channels but got ", c.dim(1, 0));
  if (z.taps < 1 || z.taps > kMostTaps) fail("taps must be in [1, ", kMostTaps, "] but got ", z.taps);
}

}  // namespace

void ShortConvKernel::supports(const Call& c, const Op&) {
  const uint32_t x = one(c.in(0).dtype);
  takes(c, {kFloats, kFloats, kIds, x, kIds}), gives(c, {x, x});
  fits(c);
}
void ShortConvKernel::launch(const Call& c, const Op&) {
  const ConvSizes z = sizes(c);
  const Documents d = documents(c);
  const ConvState state{c.has(3) ? c.get<void>(3) : nullptr, c.has(4) ? c.get<int32_t>(4) : nullptr,
                        c.has(3) ? c.dim(3, 0) : 0};
  if (c.wanted(0)) short_conv(z, d, c.get<void>(0), c.get<void>(1), state, c.put<void>(0), stream(c));
  if (state.at && c.n_out() > 1 && c.wanted(1)) {
    const int64_t bytes = elements(c.in(3)) * width_of(c.in(3).dtype);
    if (c.put<void>(1) != state.at && bytes)
      check(cudaMemcpyAsync(c.put<void>(1), state.at, size_t(bytes), cudaMemcpyDeviceToDevice, stream(c)), "a copy");
    conv_state(z, d, c.get<void>(0), state, c.put<void>(1), stream(c));
  }
  launched();
}

void ShortConvBackwardKernel::supports(const Call& c, const Op&) {
  const uint32_t x = one(c.in(0).dtype);
  takes(c, {kFloats, kFloats, kIds, x}), gives(c, {x, kFloats});
  fits(c);
}
// Partial sums of dw, and the room to add them.
uint64_t ShortConvBackwardKernel::workspace(const Call& c, const Op&) {
  const ConvSizes z = sizes(c);
  const int64_t parts = conv_parts(z), block = z.channels * z.taps;
  return uint64_t(padded(parts * block) + reduce_room({1, parts, block})) * sizeof(float);
}
void ShortConvBackwardKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0) && !c.wanted(1)) return;
  const ConvSizes z = sizes(c);
  const int64_t parts = conv_parts(z), block = z.channels * z.taps;
  float* part = c.wanted(1) ? c.workspace<float>() : nullptr;
  short_conv_backward(z, documents(c), c.get<void>(0), c.get<void>(1), c.get<void>(3), c.put<void>(0), part, stream(c));
  if (part)
    reduce_middle(Reduction::sum, part, KB_F32, {1, parts, block}, {}, c.put<void>(1), c.out(1).dtype, c.adds(1),
                  part + padded(parts * block), stream(c));
  launched();
}

}  // namespace kb::cuda::element
