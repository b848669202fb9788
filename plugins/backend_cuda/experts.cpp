#include "experts.h"

#include "experts_cuda.h"
#include "product_errors.h"

namespace kb::cuda {
namespace {

SortShape shape_of_sort(const Call& c, const ops::ExpertSort& o) {
  return {c.dim(0, 0) * c.dim(0, 1), c.dim(0, 1), o.experts, o.tile, c.out(0).shape[0]};
}
void numbers_only(const char* op, const Call& c) {
  const uint32_t t = c.in(0).dtype;
  if (t != KB_F32 && t != KB_BF16) fail(op, " must be of f32 or bf16 on CUDA but got ", dtype_name(t));
}
cudaStream_t stream_of(const Call& c) { return static_cast<cudaStream_t>(c.c->device->stream); }

}  // namespace

void ExpertSortKernel::supports(const Call& c, const Op& o) {
  if (c.out(0).shape[0] > INT32_MAX / 2) fail("source must have fewer than 2^30 rows but has ", c.out(0).shape[0]);
  if (o.experts > kMostExperts)
    fail("expert_sort must have at most ", kMostExperts, " experts on CUDA but got ", o.experts);
}
uint64_t ExpertSortKernel::workspace(const Call& c, const Op& o) { return shape_of_sort(c, o).workspace(); }
void ExpertSortKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0) && !c.wanted(1)) return;
  if (o.tile < 1) fail("tile must be at least 1 but got ", o.tile);
  const uint32_t extent = c.in(0).extent;
  const int32_t* tokens = extent && c.c->extents ? c.c->extents + extent : nullptr;
  check(expert_sort(shape_of_sort(c, o), c.get<int32_t>(0), tokens, c.put<int32_t>(0), c.put<int32_t>(1),
                    c.c->workspace, stream_of(c)),
        "expert_sort");
}

void DispatchKernel::supports(const Call& c, const Op&) { numbers_only("dispatch", c); }
void DispatchKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  if (o.active < 1) fail("active must be at least 1 but got ", o.active);
  const int64_t bytes = c.dim(0, 1) * (c.in(0).dtype == KB_BF16 ? 2 : 4);
  check(dispatch(c.dim(1, 0), bytes, o.active, c.get<char>(0), c.get<int32_t>(1), c.put<char>(0), stream_of(c)),
        "dispatch");
}

void CombineKernel::supports(const Call& c, const Op&) { numbers_only("combine", c); }
uint64_t CombineKernel::workspace(const Call&, const Op& o) { return uint64_t(o.tokens * o.active) * 4; }
void CombineKernel::launch(const Call& c, const Op& o) {
  if (!c.wanted(0)) return;
  if (o.active < 1) fail("active must be at least 1 but got ", o.active);
  check(combine(c.in(0).dtype == KB_BF16, c.dim(1, 0), o.tokens, o.active, c.dim(0, 1), c.get<char>(0),
                c.get<int32_t>(1), static_cast<int32_t*>(c.c->workspace), c.put<char>(0), stream_of(c)),
        "combine");
}

}  // namespace kb::cuda
