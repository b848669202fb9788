#include "cast.h"

namespace kb::cpu {

template <class F>
static void any_type(uint32_t dtype, F&& f) {
  if (dtype == KB_BF16) return f.template operator()<Bf16>();
  numbers(dtype, f);
}

void CastKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  const int64_t n = used(c, c.out(0));
  if (c.in(0).dtype == c.out(0).dtype)
    return copy_bytes(c, c.put<void>(0), c.get<void>(0), n * width_of(c.out(0).dtype));
  any_type(c.in(0).dtype, [&]<class From>() {
    any_type(c.out(0).dtype, [&]<class To>() {
      const From* x = c.get<From>(0);
      To* y = c.put<To>(0);
      c.parallel(n, kGrain, [&](int64_t b, int64_t e, int32_t) {
        for (int64_t i = b; i < e; ++i) y[i] = convert<To>(x[i]);
      });
    });
  });
}

}  // namespace kb::cpu
