#include "sources.h"

#include "cast.h"
#include "philox.h"

namespace kb::cpu {
namespace {

// f.template operator()<T>() for any type that a number can be written as.
template <class F>
void writable(uint32_t dtype, F&& f) {
  if (dtype == KB_BF16) return f.template operator()<Bf16>();
  numbers(dtype, f);
}

// y[i] = make(pair of block i / 2, which of the two).
template <class Draw, class Make>
void draw(const Call& c, const Draw& pair, const Make& make) {
  if (!c.wanted(0)) return;
  const int64_t n = elements(c.out(0));
  writable(c.out(0).dtype, [&]<class T>() {
    T* y = c.put<T>(0);
    c.parallel(ceil_div(n, 2), 1024, [&](int64_t b, int64_t e, int32_t) {
      for (int64_t block = b; block < e; ++block) {
        const Pair p = pair(uint64_t(block));
        y[2 * block] = make.template operator()<T>(p.a);
        if (2 * block + 1 < n) y[2 * block + 1] = make.template operator()<T>(p.b);
      }
    });
  });
}

}  // namespace

void FillKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  const int64_t n = elements(c.out(0));
  writable(c.out(0).dtype, [&]<class T>() {
    T* y = c.put<T>(0);
    const T value = convert<T>(o.value);
    c.parallel(n, 1 << 16, [&](int64_t b, int64_t e, int32_t) { std::fill(y + b, y + e, value); });
  });
}

void VectorKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  if (int64_t(o.values.n) != elements(c.out(0)))
    fail("vector must have ", elements(c.out(0)), " values but got ", o.values.n);
  writable(c.out(0).dtype, [&]<class T>() {
    for (uint32_t i = 0; i < o.values.n; ++i) c.put<T>(0)[i] = convert<T>(o.values.at[i]);
  });
}

void IotaKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  writable(c.out(0).dtype, [&]<class T>() {
    for (int64_t i = 0, n = elements(c.out(0)); i < n; ++i) c.put<T>(0)[i] = convert<T>(i);
  });
}

void NormalKernel::launch(const Call& c, const Op& o) {
  draw(
      c, [&](uint64_t block) { return normal_pair(uint64_t(o.seed), block); },
      [&]<class T>(double v) { return convert<T>(o.std * v); });
}

void UniformKernel::launch(const Call& c, const Op& o) {
  draw(
      c, [&](uint64_t block) { return uniform_pair(uint64_t(o.seed), block); },
      [&]<class T>(double v) {
        const double x = o.lo + (o.hi - o.lo) * v;
        if constexpr (std::is_floating_point_v<T>)  // rounding must not reach hi, which is excluded
          return T(x) >= o.hi && o.lo < o.hi ? std::nextafter(T(o.hi), T(o.lo)) : T(x);
        else
          return convert<T>(x);
      });
}

}  // namespace kb::cpu
