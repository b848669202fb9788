#include "onednn.h"

#include <array>
#include <dnnl.hpp>
#include <map>
#include <mutex>
#include <vector>

#include "kitbash/error.h"
#include "team.h"

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

// Scratch is the caller's: oneDNN's own would be kept for every primitive, unseen by any plan.
dnnl::matmul::primitive_desc describe(const DenseProduct& p) {
  const bool batched = p.batch != 1;
  const auto a = dense(p.batch, p.m, p.k, p.ta, batched);
  const auto b = dense(p.b_per_batch ? p.batch : 1, p.k, p.n, p.tb, batched);
  const auto c = dense(p.batch, p.m, p.n, false, batched);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (p.add) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attr.set_post_ops(sum);
  }
  try {
    return dnnl::matmul::primitive_desc({a, b, c}, attr, cpu_engine());
  } catch (const dnnl::error& x) {
    fail("[matmul] oneDNN must accept batch ", p.batch, ", m ", p.m, ", n ", p.n, ", k ", p.k, ", ta ", p.ta, ", tb ",
         p.tb, " but says: ", x.what(), "; another kernel for matmul can be chosen instead");
  }
}

}  // namespace

struct DensePrimitive::State {
  dnnl::matmul op;
  dnnl::stream stream;
  dnnl::memory a, b, c, scratch;
  int64_t scratch_bytes;
};

DensePrimitive::DensePrimitive(const DenseProduct& p) {
  dnnl::engine& e = cpu_engine();
  const auto d = describe(p);
  const auto room = d.scratchpad_desc();
  state_ =
      std::make_unique<State>(State{dnnl::matmul(d), dnnl::stream(e), dnnl::memory(d.src_desc(), e, nullptr),
                                    dnnl::memory(d.weights_desc(), e, nullptr), dnnl::memory(d.dst_desc(), e, nullptr),
                                    dnnl::memory(room, e, nullptr), int64_t(room.get_size())});
}

int64_t DensePrimitive::scratch_bytes(const DenseProduct& p, int32_t threads) {
  static std::mutex lock;
  static std::map<std::array<int64_t, 9>, int64_t> known;
  const std::lock_guard guard(lock);
  const auto [at, fresh] =
      known.emplace(std::array<int64_t, 9>{p.batch, p.m, p.n, p.k, p.ta, p.tb, p.b_per_batch, p.add, threads}, 0);
  if (fresh) {
    use_threads(threads);
    at->second = int64_t(describe(p).scratchpad_desc().get_size());
  }
  return at->second;
}

DensePrimitive::~DensePrimitive() = default;
DensePrimitive::DensePrimitive(DensePrimitive&&) noexcept = default;
DensePrimitive& DensePrimitive::operator=(DensePrimitive&&) noexcept = default;

void DensePrimitive::run(const float* a, const float* b, float* c, void* scratch, int64_t room) {
  static thread_local std::vector<char> own;
  try {
    State& s = *state_;
    if (s.scratch_bytes > room) {  // a product of fewer rows may be cut otherwise, and want a little more
      own.resize(std::max(own.size(), size_t(s.scratch_bytes) + 64));
      scratch = own.data() + (64 - reinterpret_cast<uintptr_t>(own.data()) % 64) % 64;
    }
    s.scratch.set_data_handle(scratch);
    s.a.set_data_handle(const_cast<float*>(a));
    s.b.set_data_handle(const_cast<float*>(b));
    s.c.set_data_handle(c);
    s.op.execute(s.stream,
                 {{DNNL_ARG_SRC, s.a}, {DNNL_ARG_WEIGHTS, s.b}, {DNNL_ARG_DST, s.c}, {DNNL_ARG_SCRATCHPAD, s.scratch}});
    s.stream.wait();
  } catch (const dnnl::error& x) {
    fail("[matmul] oneDNN must run its product but says: ", x.what(), "; lower the thread count or the memory in use");
  }
}

}  // namespace kb::cpu
