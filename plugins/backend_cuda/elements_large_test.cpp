// More elements than 32 bits count: a few places of results that lie past 2^31 elements.
#include "elements_test.h"
#include "move_kernels.h"
#include "pointwise_kernels.h"
#include "reduce_kernels.h"
#include "sources_kernels.h"

using namespace elements_test;
using namespace kb::cuda::element;

namespace {

kb_type type_of(uint32_t dtype, const kb::Shape& s) {
  kb_type t{};
  t.dtype = dtype, t.rank = s.n;
  std::copy(s.at, s.at + s.n, t.shape);
  return t;
}
void launch(const kb_kernel* k, const std::vector<kb_attr>& attrs, const std::vector<kb_tensor>& in,
            const kb_tensor& out) {
  kb_call c{};
  c.struct_size = KB_STRUCT_SIZE(kb_call, device);
  c.attr = attrs.data(), c.n_attr = uint32_t(attrs.size());
  c.in = in.data(), c.n_in = uint32_t(in.size());
  c.out = &out, c.n_out = 1;
  c.device = &kbtest::cuda_device();
  kbtest::DeviceBytes room(k->workspace ? k->workspace(&c) : 0);
  c.workspace = room.data();
  kb_error e{};
  if (k->launch(nullptr, &c, &e)) throw kb::Error(e.message);
  KB_CUDA_OK(cudaDeviceSynchronize());
}
double read(const kb_tensor& t, int64_t i) {
  Array one = array(t.type.dtype, {1});
  KB_CUDA_OK(cudaMemcpy(one.bytes.data(), static_cast<char*>(t.data) + size_t(i) * one.bytes.size(), one.bytes.size(),
                        cudaMemcpyDeviceToHost));
  return one.at(0);
}
void write(const kb_tensor& t, int64_t i, double v) {
  const Array one = array(t.type.dtype, {1}, {v});
  KB_CUDA_OK(cudaMemcpy(static_cast<char*>(t.data) + size_t(i) * one.bytes.size(), one.bytes.data(), one.bytes.size(),
                        cudaMemcpyHostToDevice));
}
bool room_for(size_t bytes) {
  size_t free_bytes = 0, all = 0;
  KB_CUDA_OK(cudaMemGetInfo(&free_bytes, &all));
  return free_bytes > bytes + (size_t(1) << 30);
}

constexpr int64_t kMany = (int64_t(1) << 31) + 9;

TEST(CudaLarge, ElementsPast31BitsAreReached) {
  KB_NEEDS_DEVICE();
  if (!room_for(size_t(kMany) * 2)) GTEST_SKIP() << "not enough device memory";
  kbtest::DeviceBytes memory{size_t(kMany) * 2 + 64};
  const kb_tensor x{memory.data(), type_of(KB_BF16, {kMany}), {}};
  launch(kb::kernel_table<FillKernel>(),
         {kb::Attr("shape", kb::Shape{kMany}), kb::Attr("value", 3.0), kb::Attr("dtype", KB_BF16)}, {}, x);
  EXPECT_EQ(read(x, kMany - 1), 3);
  launch(kb::kernel_table<AffineKernel>(), {kb::Attr("mul", 2.0), kb::Attr("add", -1.0)}, {x}, x);
  for (int64_t i : {int64_t(0), kMany / 2, kMany - 10, kMany - 9, kMany - 1}) EXPECT_EQ(read(x, i), 5) << i;
  // Rows of 3: the walk needs 64 bits.
  const int64_t rows = kMany / 3 + 1;
  const kb_tensor rows_of_3{memory.data(), type_of(KB_BF16, {rows, 3}), {}};
  const Array row = array(KB_BF16, {3}, {1, 2, 4});
  kbtest::DeviceBytes small(6);
  small.from(row.bytes.data());
  write(rows_of_3, rows * 3 - 1, 5), write(rows_of_3, rows * 3 - 2, 5), write(rows_of_3, rows * 3 - 3, 5);
  launch(kb::kernel_table<AddKernel>(), {}, {rows_of_3, {small.data(), row.type, {}}}, rows_of_3);
  for (int64_t r : {int64_t(0), rows / 2, rows - 1})
    for (int64_t k = 0; k < 3; ++k) EXPECT_EQ(read(rows_of_3, r * 3 + k), 5 + row.at(k)) << r;
  kbtest::DeviceBytes sums(12);
  const kb_tensor sum{sums.data(), type_of(KB_F32, {3}), {}};
  launch(kb::kernel_table<SumKernel>(), {kb::Attr("axis", 0), kb::Attr("keep", false)}, {rows_of_3}, sum);
  for (int64_t k = 0; k < 3; ++k) EXPECT_NEAR(read(sum, k), double(rows) * (5 + row.at(k)), 1e-5 * double(rows) * 9);
}

TEST(CudaLarge, BytesPast31BitsMove) {
  KB_NEEDS_DEVICE();
  const int64_t a = 65537, b = 32776;  // b a multiple of 8
  if (!room_for(size_t(a * b) * 2)) GTEST_SKIP() << "not enough device memory";
  kbtest::DeviceBytes from{size_t(a * b)}, to{size_t(a * b)};
  const kb_tensor x{from.data(), type_of(KB_U8, {a, b}), {}}, y{to.data(), type_of(KB_U8, {b, a}), {}};
  KB_CUDA_OK(cudaMemset(from.data(), 7, size_t(a * b)));
  write(x, a * b - 1, 9), write(x, (a - 1) * b + 5, 8);
  launch(kb::kernel_table<PermuteKernel>(), {kb::Attr("axes", kb::Shape{1, 0})}, {x}, y);
  EXPECT_EQ(read(y, a * b - 1), 9);
  EXPECT_EQ(read(y, 5 * a + a - 1), 8);
  EXPECT_EQ(read(y, a * b - 2), 7);
  const kb_tensor rows{to.data(), type_of(KB_U8, {a, b - 8}), {}};
  launch(kb::kernel_table<SliceKernel>(), {kb::Attr("axis", 1), kb::Attr("begin", 8), kb::Attr("end", b)}, {x}, rows);
  EXPECT_EQ(read(rows, a * (b - 8) - 1), 9);
  EXPECT_EQ(read(rows, a * (b - 8) - 2), 7);
}

}  // namespace
