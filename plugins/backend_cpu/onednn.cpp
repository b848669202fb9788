#include "onednn.h"

#include <dnnl.hpp>

#include "kitbash/error.h"

namespace kb::cpu {
namespace {

dnnl::engine& cpu_engine() {
  static auto* e = new dnnl::engine(dnnl::engine::kind::cpu, 0);  // outlives every plan, at exit too
  return *e;
}

// [batch, rows, cols], stored with the last two axes swapped when `swapped`; a batch of 1 is left out.
dnnl::memory::desc dense(int64_t batch, int64_t rows, int64_t cols, bool swapped, bool batched) {
  using D = dnnl::memory::dims;
  const int64_t row = swapped ? 1 : cols, col = swapped ? rows : 1;
  return batched ? dnnl::memory::desc({batch, rows, cols}, dnnl::memory::data_type::f32, D{rows * cols, row, col})
                 : dnnl::memory::desc({rows, cols}, dnnl::memory::data_type::f32, D{row, col});
}

}  // namespace

struct DensePrimitive::State {
  dnnl::matmul op;
  dnnl::stream stream;
  dnnl::memory a, b, c;
};

DensePrimitive::DensePrimitive(const DenseProduct& p) {
  try {
    const bool batched = p.batch != 1;
    const auto a = dense(p.batch, p.m, p.k, p.ta, batched);
    const auto b = dense(p.b_per_batch ? p.batch : 1, p.k, p.n, p.tb, batched);
    const auto c = dense(p.batch, p.m, p.n, false, batched);
    dnnl::primitive_attr attr;
    if (p.add) {
      dnnl::post_ops sum;
      sum.append_sum(1.0f);
      attr.set_post_ops(sum);
    }
    dnnl::engine& e = cpu_engine();
    state_ = std::make_unique<State>(State{dnnl::matmul(dnnl::matmul::primitive_desc({a, b, c}, attr, e)),
                                           dnnl::stream(e), dnnl::memory(a, e, nullptr), dnnl::memory(b, e, nullptr),
                                           dnnl::memory(c, e, nullptr)});
  } catch (const dnnl::error& x) {
    fail("[matmul] oneDNN must accept batch ", p.batch, ", m ", p.m, ", n ", p.n, ", k ", p.k, ", ta ", p.ta, ", tb ",
         p.tb, " but says: ", x.what(), "; another kernel for matmul can be chosen instead");
  }
}
DensePrimitive::~DensePrimitive() = default;
DensePrimitive::DensePrimitive(DensePrimitive&&) noexcept = default;
DensePrimitive& DensePrimitive::operator=(DensePrimitive&&) noexcept = default;

void DensePrimitive::run(const float* a, const float* b, float* c) {
  try {
    State& s = *state_;
    s.a.set_data_handle(const_cast<float*>(a));
    s.b.set_data_handle(const_cast<float*>(b));
    s.c.set_data_handle(c);
    s.op.execute(s.stream, {{DNNL_ARG_SRC, s.a}, {DNNL_ARG_WEIGHTS, s.b}, {DNNL_ARG_DST, s.c}});
    s.stream.wait();
  } catch (const dnnl::error& x) {
    fail("[matmul] oneDNN must run its product but says: ", x.what(), "; lower the thread count or the memory in use");
  }
}

}  // namespace kb::cpu
