#include "grouped.h"

#include "grouped_wgmma.h"
#include "product_errors.h"
#include "tensor_map.h"

namespace kb::cuda {
namespace {

LinearShape shape_of(const Call& c, const ops::GroupedLinear& op) {
  return {c.dim(0, 0), c.dim(0, 1), c.dim(1, op.tw ? 1 : 2), c.dim(1, 0), op.tw, c.adds(0)};
}
OuterShape shape_of(const Call& c, const ops::GroupedOuter& op) {
  return {c.dim(0, 0), c.dim(0, 1), c.dim(1, 1), op.experts, c.adds(0)};
}
cudaStream_t stream_of(const Call& c) { return static_cast<cudaStream_t>(c.c->device->stream); }

// f32_result: bf16 operands may have an f32 result, a gradient that is added to an f32 accumulator as it is written.
void numbers_only(const char* op, const Call& c, bool f32_result) {
  const uint32_t t = c.in(0).dtype;
  if (t != KB_F32 && t != KB_BF16) fail(op, " must be of f32 or bf16 on CUDA but got ", dtype_name(t));
  if (c.in(1).dtype != t || (c.out(0).dtype != t && !(f32_result && c.out(0).dtype == KB_F32)))
    fail(op, " must have operands and a result of one type but got ", dtype_name(t), ", ", dtype_name(c.in(1).dtype),
         " and ", dtype_name(c.out(0).dtype));
}
void few_experts(const char* op, int64_t experts) {
  if (experts > 65535) fail(op, " must have at most 65535 experts on CUDA but got ", experts);
}

void hopper_only(const char* op, const Call& c, bool f32_result, int64_t p, int64_t q, int64_t rows, int64_t experts) {
  numbers_only(op, c, f32_result);
  if (c.in(0).dtype != KB_BF16) fail(op, " must be of bf16 on the tensor cores but got ", dtype_name(c.in(0).dtype));
  if (p % 8 || q % 8 || p == 0 || q == 0)
    fail(op, " must have widths that are multiples of 8 on the tensor cores but got ", p, " and ", q);
  // Counted in 32 bits; a row tile may begin 127 rows past the last.
  if (rows > INT32_MAX - 1024 || experts * ((p + 127) / 128) * ((q + 127) / 128) > INT32_MAX)
    fail(op, " must have fewer than 2^31 rows and tiles on the tensor cores");
}

}  // namespace

// What stays from launch to launch. Maps hold addresses, so they are made anew where an operand has moved.
struct GroupedPlan {
  int multiprocessors = 0;
  const void *at_a = nullptr, *at_b = nullptr, *at_y = nullptr;
  GroupedMaps maps{};

  // The result [planes, rows, width].
  void map_result(const void* at, int64_t width, int64_t rows, int64_t planes, bool f32) {
    if (at_y == at) return;
    at_y = at;
    maps.y = tensor_map(at, width, rows, planes, f32);
    const int left_over = maps.cols % (f32 ? 32 : 64);
    maps.rest = left_over ? tensor_map(at, width, rows, planes, f32, left_over) : maps.y;
  }
};
GroupedHopper::GroupedHopper() : state(std::make_unique<GroupedPlan>()) {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&state->multiprocessors, cudaDevAttrMultiProcessorCount, device), "the device's size");
}
GroupedHopper::~GroupedHopper() = default;

void GroupedLinearWgmma::supports(const Call& c, const Op& op) {
  hopper_only("grouped_linear", c, false, c.dim(0, 1), c.dim(1, op.tw ? 1 : 2), c.dim(0, 0), c.dim(1, 0));
}
std::unique_ptr<GroupedHopper> GroupedLinearWgmma::prepare(const Call& c, const Op& op) {
  auto plan = std::make_unique<GroupedHopper>();
  plan->state->maps.cols = grouped_cols(c.out(0).shape[1]);
  check(prepare_grouped_linear_wgmma(op.tw, plan->state->maps.cols), "grouped_linear");
  return plan;
}
void GroupedLinearWgmma::launch(const Call& c, const Op& op, Plan& plan) {
  const LinearShape s = shape_of(c, op);
  if (!c.wanted(0) || s.rows == 0) return;
  GroupedPlan& p = *plan.state;
  if (p.at_a != c.get<char>(0)) p.maps.a = tensor_map(p.at_a = c.get<char>(0), s.in, s.rows, 1);
  if (p.at_b != c.get<char>(1))
    p.maps.b = tensor_map(p.at_b = c.get<char>(1), s.tw ? s.in : s.out, s.tw ? s.out : s.in, s.experts);
  p.map_result(c.put<char>(0), s.out, s.rows, 1, false);
  check(grouped_linear_wgmma(s, p.maps, c.get<int32_t>(2), c.put<char>(0), p.multiprocessors, stream_of(c)),
        "grouped_linear");
}

void GroupedOuterWgmma::supports(const Call& c, const Op& op) {
  hopper_only("grouped_outer", c, true, c.dim(0, 1), c.dim(1, 1), c.dim(0, 0), op.experts);
}
std::unique_ptr<GroupedHopper> GroupedOuterWgmma::prepare(const Call& c, const Op&) {
  auto plan = std::make_unique<GroupedHopper>();
  plan->state->maps.cols = grouped_cols(c.out(0).shape[2]);
  check(prepare_grouped_outer_wgmma(c.out(0).dtype == KB_F32, plan->state->maps.cols), "grouped_outer");
  return plan;
}
void GroupedOuterWgmma::launch(const Call& c, const Op& op, Plan& plan) {
  if (!c.wanted(0)) return;
  const OuterShape s = shape_of(c, op);
  GroupedPlan& p = *plan.state;
  const bool f32 = c.out(0).dtype == KB_F32;
  if (p.at_a != c.get<char>(0)) p.maps.a = tensor_map(p.at_a = c.get<char>(0), s.o, s.rows, 1);
  if (p.at_b != c.get<char>(1)) p.maps.b = tensor_map(p.at_b = c.get<char>(1), s.i, s.rows, 1);
  p.map_result(c.put<char>(0), s.i, s.o, s.experts, f32);
  check(grouped_outer_wgmma(s, f32, p.maps, c.get<int32_t>(2), c.put<char>(0), p.multiprocessors, stream_of(c)),
        "grouped_outer");
}

void GroupedLinearSimt::supports(const Call& c, const Op&) {
  numbers_only("grouped_linear", c, false);
  few_experts("grouped_linear", c.dim(1, 0));
}
void GroupedLinearSimt::launch(const Call& c, const Op& op) {
  if (!c.wanted(0)) return;
  check(grouped_linear_simt(shape_of(c, op), c.in(0).dtype == KB_BF16, c.get<char>(0), c.get<char>(1),
                            c.get<int32_t>(2), c.put<char>(0), stream_of(c)),
        "grouped_linear");
}

void GroupedOuterSimt::supports(const Call& c, const Op& op) {
  numbers_only("grouped_outer", c, true);
  few_experts("grouped_outer", op.experts);
}
void GroupedOuterSimt::launch(const Call& c, const Op& op) {
  if (!c.wanted(0)) return;
  check(grouped_outer_simt(shape_of(c, op), c.in(0).dtype == KB_BF16, c.out(0).dtype == KB_F32, c.get<char>(0),
                           c.get<char>(1), c.get<int32_t>(2), c.put<char>(0), stream_of(c)),
        "grouped_outer");
}

}  // namespace kb::cuda
