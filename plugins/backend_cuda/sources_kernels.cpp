#include "sources_kernels.h"

#include <bit>
#include <cmath>

#include "sources_cuda.h"

namespace kb::cuda::element {
namespace {

// To bf16 with one rounding: by way of a float that is rounded to odd.
uint16_t to_bf16(double x) {
  float f = float(x);
  uint32_t b = std::bit_cast<uint32_t>(f);
  if (std::isnan(f)) return uint16_t(b >> 16 | 0x40);
  if (double(f) != x && std::isfinite(f) && !(b & 1))
    b = std::bit_cast<uint32_t>(std::nextafter(f, x > double(f) ? INFINITY : -INFINITY));
  return uint16_t((b + 0x7fffu + (b >> 16 & 1)) >> 16);
}
int64_t to_integer(double x, double least, double most) {
  if (x != x) return 0;
  if (x <= least) return int64_t(least);
  return x >= most ? (most >= 0x1p63 ? INT64_MAX : int64_t(most)) : int64_t(x);
}
uint64_t bits_of(double x, uint32_t dtype) {
  switch (dtype) {
    case KB_BF16:
      return to_bf16(x);
    case KB_F32:
      return std::bit_cast<uint32_t>(float(x));
    case KB_I32:
      return uint32_t(to_integer(x, INT32_MIN, INT32_MAX));
    case KB_I64:
      return uint64_t(to_integer(x, -0x1p63, 0x1p63));
    default:
      return uint64_t(to_integer(x, 0, 255));
  }
}

}  // namespace

void FillKernel::supports(const Call& c, const Op&) { gives(c, {kNumbers}); }
void FillKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  const uint32_t t = c.out(0).dtype;
  fill({bits_of(o.value, t), int(width_of(t))}, c.put<void>(0), elements(c.out(0)), stream(c));
  launched();
}

void VectorKernel::supports(const Call& c, const Op& o) {
  gives(c, {kNumbers});
  if (int64_t(o.values.n) != elements(c.out(0)))
    fail("vector must have ", elements(c.out(0)), " values but got ", o.values.n);
}
void VectorKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  const uint32_t t = c.out(0).dtype;
  std::vector<uint64_t> bits;
  for (uint32_t i = 0; i < o.values.n; ++i) bits.push_back(bits_of(o.values.at[i], t));
  write_values(bits.data(), int(width_of(t)), c.put<void>(0), int64_t(bits.size()), stream(c));
  launched();
}

void IotaKernel::supports(const Call& c, const Op&) { gives(c, {kIds}); }
void IotaKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  iota(c.put<int32_t>(0), elements(c.out(0)), stream(c));
  launched();
}

void NormalKernel::supports(const Call& c, const Op&) { gives(c, {kFloats}); }
void NormalKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  normal(uint64_t(o.seed), o.std, c.put<void>(0), c.out(0).dtype, elements(c.out(0)), stream(c));
  launched();
}

void UniformKernel::supports(const Call& c, const Op&) { gives(c, {kFloats}); }
void UniformKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  uniform(uint64_t(o.seed), o.lo, o.hi, c.put<void>(0), c.out(0).dtype, elements(c.out(0)), stream(c));
  launched();
}

}  // namespace kb::cuda::element
