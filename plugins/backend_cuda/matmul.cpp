#include "matmul.h"

#include "matmul_parts.h"
#include "product_errors.h"

namespace kb::cuda {
namespace {

Product product_of(const Call& c, const ops::Matmul& op) {
  const kb_type &a = c.in(0), &b = c.in(1), &y = c.out(0);
  Product p{1, y.shape[y.rank - 2], y.shape[y.rank - 1], c.dim(0, op.ta ? -2 : -1), op.ta, op.tb, b.rank > 2};
  for (int i = 0; i < a.rank - 2; ++i) p.batch *= a.shape[i];
  // One b for all of a, whose rows are contiguous: a single product.
  if (!p.b_batched && !op.ta) p.m *= p.batch, p.batch = 1;
  return p;
}
bool nothing(const Product& p) { return p.empty() || p.k == 0; }
cublasLtHandle_t handle_of(const Call& c) { return static_cast<cublasLtHandle_t>(c.c->device->cublaslt); }
cudaStream_t stream_of(const Call& c) { return static_cast<cudaStream_t>(c.c->device->stream); }

void sum_of_nothing(const Call& c) {
  const int64_t bytes = elements(c.out(0)) * (c.out(0).dtype == KB_BF16 ? 2 : 4);
  if (bytes && !c.adds(0))
    check(cudaMemsetAsync(c.put<char>(0), 0, size_t(bytes), stream_of(c)), "clearing the product");
}

}  // namespace

void Matmul::supports(const Call& c, const Op&) {
  const uint32_t t = c.in(0).dtype;
  if (t != KB_F32 && t != KB_BF16) fail("matmul operands must be f32 or bf16 on CUDA but got ", dtype_name(t));
  // bf16 operands may have an f32 result: a gradient that is added to an f32 accumulator as it is written.
  if (c.in(1).dtype != t || (c.out(0).dtype != t && c.out(0).dtype != KB_F32))
    fail("matmul operands and result must have one type on CUDA but got ", dtype_name(t), ", ",
         dtype_name(c.in(1).dtype), " and ", dtype_name(c.out(0).dtype));
}
uint64_t Matmul::workspace(const Call& c, const Op& op) { return nothing(product_of(c, op)) ? 0 : LtProduct::kRoom; }
std::unique_ptr<MatmulPlan> Matmul::prepare(const Call& c, const Op& op) {
  auto plan = std::make_unique<Plan>();
  const Product p = product_of(c, op);
  if (!nothing(p))
    plan->product =
        std::make_unique<LtProduct>(p, c.in(0).dtype == KB_BF16, c.out(0).dtype == KB_F32, c.adds(0), handle_of(c));
  return plan;
}
void Matmul::launch(const Call& c, const Op&, Plan& plan) {
  if (!c.wanted(0)) return;
  if (!plan.product) return sum_of_nothing(c);
  plan.product->run(c.get<void>(0), c.get<void>(1), c.put<void>(0), c.adds(0), c.c->workspace, stream_of(c));
}

namespace {

// The f32 operand as [rows, cols], cut into [rows, 3, cols] of bf16; the product with that has the result's parts, [rows, 3, cols]
// too, side by side or one below the other.
struct Mixed {
  Product product;  // with the three parts as one operand
  Parts operand, result;
  uint64_t cut() const { return uint64_t(operand.rows * operand.cols) * 6; }
  uint64_t sums() const { return uint64_t(result.rows * result.cols) * 12; }
};
Mixed mixed_of(const Call& c, const ops::Matmul& op) {
  Product p = product_of(c, op);
  Mixed x{p, {}, {}};
  if (op.tb) {
    x.operand = {1, p.n * p.k}, x.result = {p.m, p.n};
    x.product.n *= 3;
  } else {
    x.operand = {p.k, p.m}, x.result = {1, p.m * p.n};
    x.product.m *= 3;
  }
  return x;
}
uint64_t rounded(uint64_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

void MatmulMixed::supports(const Call& c, const Op& op) {
  const uint32_t a = c.in(0).dtype, b = c.in(1).dtype;
  const bool forward = a == KB_BF16 && b == KB_F32 && !op.ta && op.tb && c.in(1).rank == 2,
             weight = a == KB_F32 && b == KB_BF16 && op.ta && !op.tb && c.in(0).rank == 2 && c.in(1).rank == 2;
  if (!forward && !weight)
    fail(
        "matmul of two types takes bf16 [.., m, k] with f32 [n, k] transposed, or f32 [k, m] transposed with bf16 [k, "
        "n], but got ",
        dtype_name(a), op.ta ? " transposed" : "", " with ", dtype_name(b), op.tb ? " transposed" : "");
  if (c.out(0).dtype != KB_F32) fail("matmul of two types has an f32 result but got ", dtype_name(c.out(0).dtype));
}
uint64_t MatmulMixed::workspace(const Call& c, const Op& op) {
  const Mixed x = mixed_of(c, op);
  return nothing(x.product) ? 0 : rounded(x.cut()) + rounded(x.sums()) + LtProduct::kRoom;
}
std::unique_ptr<MatmulPlan> MatmulMixed::prepare(const Call& c, const Op& op) {
  auto plan = std::make_unique<Plan>();
  const Mixed x = mixed_of(c, op);
  if (!nothing(x.product)) plan->product = std::make_unique<LtProduct>(x.product, true, true, false, handle_of(c));
  return plan;
}
void MatmulMixed::launch(const Call& c, const Op& op, Plan& plan) {
  if (!c.wanted(0)) return;
  if (!plan.product) return sum_of_nothing(c);
  const Mixed x = mixed_of(c, op);
  char *cut = static_cast<char*>(c.c->workspace), *sums = cut + rounded(x.cut()), *room = sums + rounded(x.sums());
  const bool b_is_cut = op.tb;
  check(cut_in_three(c.get<float>(b_is_cut ? 1 : 0), x.operand, cut, stream_of(c)), "the cut into three");
  plan.product->run(b_is_cut ? c.get<void>(0) : cut, b_is_cut ? cut : c.get<void>(1), sums, false, room, stream_of(c));
  check(add_three(reinterpret_cast<const float*>(sums), x.result, c.put<float>(0), c.adds(0), stream_of(c)),
        "the sum of three");
}

}  // namespace kb::cuda
