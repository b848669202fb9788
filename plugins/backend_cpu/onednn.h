// onednn.h: float matrix products by oneDNN, as primitives made once for a shape. The only header that stands for
// oneDNN's 2.x API (3.x drops the op descriptors); nothing of it is visible here.
#pragma once
#include <cstdint>
#include <memory>

namespace kb::cpu {

struct DenseProduct {  // c [batch, m, n] = op(a) op(b), or += when add; operands dense
  int64_t batch, m, n, k;
  bool ta, tb;       // a is [batch, k, m], b is [batch, n, k]
  bool b_per_batch;  // else one b [k, n] for all of a
  bool add;
  bool operator==(const DenseProduct&) const = default;
};

// One product ready to run: making it takes 0.1 to 0.2 ms, running it no more than the product. Not for two threads at
// once.
class DensePrimitive {
 public:
  explicit DensePrimitive(const DenseProduct& p);  // throws kb::Error with the shape when oneDNN declines
  ~DensePrimitive();
  DensePrimitive(DensePrimitive&&) noexcept;
  DensePrimitive& operator=(DensePrimitive&&) noexcept;
  // `scratch`: at least scratch_bytes() for it, 64-byte aligned; with less room (`room` bytes), memory of its own is used.
  void run(const float* a, const float* b, float* c, void* scratch, int64_t room);
  // What oneDNN works in for this product with this many threads. Asked once a product, then remembered.
  static int64_t scratch_bytes(const DenseProduct& p, int32_t threads);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kb::cpu
