#include "rows_kernels.h"

#include "scatter_cuda.h"
#include "topk_cuda.h"

namespace kb::cuda::element {

void ScatterAddKernel::supports(const Call& c, const Op&) {
  takes(c, {kFloats, kIds}), gives(c, {one(c.in(0).dtype)});
  if (c.dim(0, 0) > INT32_MAX - 1 || c.out(0).shape[0] > INT32_MAX - 2) fail("rows must be numbered by i32");
}
uint64_t ScatterAddKernel::workspace(const Call& c, const Op&) { return scatter_room(c.dim(0, 0), c.out(0).shape[0]); }
void ScatterAddKernel::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  const kb_type& x = c.in(0);
  const int32_t* used = rows_in_use(c, x) ? rows_in_use(c, x) : rows_in_use(c, c.in(1));
  check(scatter_add(c.get<void>(0), x.dtype, c.get<int32_t>(1), x.shape[0], used, product(x, 1, x.rank),
                    c.out(0).shape[0], c.put<void>(0), c.adds(0), c.workspace<void>(), stream(c)),
        "scatter_add");
}

void TopkKernel::supports(const Call& c, const Op&) { takes(c, {kFloats}), gives(c, {one(c.in(0).dtype), kIds}); }
void TopkKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0) && !c.wanted(1)) return;
  const int64_t n = c.dim(0, -1);
  if (o.k < 1 || o.k > n) fail("k must be in [1, ", n, "] but got ", o.k);
  topk(c.get<void>(0), c.in(0).dtype, elements(c.in(0)) / n, n, o.k, c.put<void>(0), c.put<int32_t>(1), stream(c));
  launched();
}

}  // namespace kb::cuda::element
