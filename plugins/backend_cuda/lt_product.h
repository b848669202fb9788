// lt_product.h: one product through cuBLASLt, its algorithm chosen once, from shapes alone.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>

namespace kb::cuda {

// y [batch, m, n] = a [batch, m, k] b [batch or 1, k, n]; ta, tb: the last two axes of that operand are swapped in memory.
struct Product {
  int64_t batch, m, n, k;
  bool ta, tb, b_batched;
  bool empty() const { return batch * m * n == 0; }
};

class LtProduct {
 public:
  static constexpr uint64_t kRoom = (uint64_t(32) << 20) + 256;  // bytes of workspace, of any alignment
  // Operands of bf16 or f32 with sums in fp32; f32_result: of bf16 operands. adds: run() may be asked to add to y.
  LtProduct(const Product& p, bool bf16, bool f32_result, bool adds, cublasLtHandle_t handle);
  ~LtProduct();
  void run(const void* a, const void* b, void* y, bool add, void* room, cudaStream_t stream) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kb::cuda
