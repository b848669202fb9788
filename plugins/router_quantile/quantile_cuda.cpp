// The CUDA kernels of quantile balancing as tables.
#include "quantile_cuda.h"

#include "quantile_cuda_kernels.h"

namespace {

void check(cudaError_t e, const char* op) {
  if (e != cudaSuccess) kb::fail("the CUDA kernels of ", op, " must launch but got: ", cudaGetErrorString(e));
}
cudaStream_t stream(const kb::Call& c) { return static_cast<cudaStream_t>(c.c->device->stream); }

// Output o is input i changed in place: one buffer, or a copy where the host could not give it. Null: not wanted.
template <class T>
T* in_place(const kb::Call& c, uint32_t o, uint32_t i, const char* op) {
  T* out = c.put<T>(o);
  if (out && out != c.get<T>(i))
    check(cudaMemcpyAsync(out, c.get<T>(i), size_t(kb::elements(c.in(i))) * sizeof(T), cudaMemcpyDeviceToDevice,
                          stream(c)),
          op);
  return out;
}
const int32_t* used(const kb::Call& c, uint32_t i) {  // a device integer; null: all rows
  return c.in(i).extent && c.c->extents ? c.c->extents + c.in(i).extent : nullptr;
}
quantile_cuda::Tokens tokens(const kb::Call& c, uint32_t first) {  // scores, cutoff, document
  return {c.get<float>(first), c.get<float>(first + 1), c.get<int32_t>(first + 2), used(c, first), c.dim(first, 0)};
}

}  // namespace

void QuantileCountCuda::launch(const kb::Call& c, const QuantileCount&) {
  int32_t* counts = in_place<int32_t>(c, 0, 0, Op::name);
  if (counts)
    check(quantile_cuda::count(tokens(c, 1), c.get<float>(4), c.dim(0, 0), c.dim(0, 1), counts, stream(c)), Op::name);
}

void QuantileEstimateCuda::launch(const kb::Call& c, const QuantileEstimate& op) {
  check(quantile_cuda::estimate(c.get<int32_t>(0), c.get<float>(1), c.dim(0, 0), c.dim(0, 1), op.active, op.ema,
                                c.workspace<double>(), c.put<float>(0), stream(c)),
        Op::name);
}

void QuantileAppendCuda::launch(const kb::Call& c, const QuantileAppend&) {
  float* margins = in_place<float>(c, 0, 0, Op::name);
  int32_t* filled = in_place<int32_t>(c, 1, 1, Op::name);
  if (!margins || !filled) kb::fail("margins and filled are one list: both outputs must be wanted");
  check(
      quantile_cuda::append(tokens(c, 2), c.dim(0, 1), c.dim(0, 0), c.workspace<int32_t>(), margins, filled, stream(c)),
      Op::name);
}

void QuantileExactCuda::launch(const kb::Call& c, const QuantileExact& op) {
  check(quantile_cuda::exact(c.get<float>(0), c.get<int32_t>(1), c.get<int32_t>(2), c.get<float>(3), c.dim(0, 1),
                             c.dim(0, 0), op.active, op.ema, c.workspace<double>(), c.put<float>(0), stream(c)),
        Op::name);
}

void ExpertLoadCuda::launch(const kb::Call& c, const ExpertLoad&) {
  int32_t* load = in_place<int32_t>(c, 0, 0, Op::name);
  if (load)
    check(quantile_cuda::load(c.get<int32_t>(1), c.get<int32_t>(2), used(c, 1), c.dim(1, 0), c.dim(1, 1), c.dim(0, 0),
                              load, stream(c)),
          Op::name);
}
