#include "grouped.h"

#include "gemm.h"
#include "shares.h"

// One thread an expert's block with the kernel of gemm.h, not oneDNN: segments are short and every count is new.
// Measured on two cores, 2048 rows over 16 experts, 64 -> 48: 178 GF/s and 194 (outer), against dnnl_sgemm expert by
// expert 98 and 119.
namespace kb::cpu {
namespace {

struct Segments {
  const int32_t* offsets;  // [experts + 1]
  int64_t experts;
};

// The borders, checked against the rows there are: a bad one would write out of bounds.
Segments segments(const Call& c, const char* op, int64_t experts, int64_t rows) {
  const Segments s{c.get<int32_t>(2), experts};
  if (c.dim(2, 0) != experts + 1)
    fail("[", op, "] offsets must have ", experts + 1, " borders (experts + 1) but has ", c.dim(2, 0));
  for (int64_t e = 0; e < experts; ++e)
    if (s.offsets[e] < 0 || s.offsets[e + 1] < s.offsets[e] || s.offsets[e + 1] > rows)
      fail("[", op, "] the rows of expert ", e, " must lie in [0, ", rows, ") in order but are [", s.offsets[e], ", ",
           s.offsets[e + 1], "); offsets come from expert_sort");
  return s;
}

struct Block {
  int64_t expert, begin, end;  // rows
};

// For few long rows the dot products save transposing the weights.
constexpr int64_t kFewRows = 16, kLongRows = 128;
constexpr int64_t kResultRows = 24;
constexpr int64_t kSegmentRows = 256;  // rows of an expert that are one unit of work

}  // namespace

void GroupedLinear::supports(const Call& c, const Op&) { decline_bf16(c, "grouped_linear"); }
void GroupedOuter::supports(const Call& c, const Op&) { decline_bf16(c, "grouped_outer"); }

uint64_t GroupedLinear::workspace(const Call& c, const Op&) {
  return uint64_t(c.threads() * kBlockScratch) * (c.in(0).dtype == KB_F64 ? 8 : 4);
}

void GroupedLinear::launch(const Call& c, const Op& op) {
  if (!c.wanted(0)) return;
  const int64_t bound = c.dim(0, 0), in = c.dim(0, 1), out = c.dim(1, op.tw ? 1 : 2), experts = c.dim(1, 0);
  const Segments s = segments(c, "grouped_linear", experts, bound);
  std::vector<Block> blocks;
  std::vector<double> cost;
  for (int64_t e = 0; e < experts; ++e)
    for (int64_t r = s.offsets[e]; r < s.offsets[e + 1]; r += kSegmentRows) {
      blocks.push_back({e, r, std::min<int64_t>(s.offsets[e + 1], r + kSegmentRows)});
      // 16 rows' worth for the pass over the weights that a block costs however short it is
      cost.push_back(double(blocks.back().end - r + 16) * double(in) * double(out));
    }
  floats(c.in(0).dtype, [&]<class T>() {
    const T *x = c.get<T>(0), *w = c.get<T>(1);
    T* y = c.put<T>(0);
    share(c, cost, [&](int64_t first, int64_t last, int32_t thread) {
      T* scratch = c.workspace<T>() + thread * kBlockScratch;
      for (int64_t u = first; u < last; ++u) {
        const Block& b = blocks[size_t(u)];
        if (op.tw && b.end - b.begin <= kFewRows && in >= kLongRows) {
          multiply_dots(b.end - b.begin, out, in, x + b.begin * in, in, w + b.expert * in * out, in, y + b.begin * out,
                        out, c.adds(0));
          continue;
        }
        multiply_blocked<T>({b.end - b.begin, out, in, false, op.tw, c.adds(0)}, x + b.begin * in,
                            w + b.expert * in * out, y + b.begin * out, 0, b.end - b.begin, 0, out, scratch);
      }
    });
    if (c.adds(0)) return;
    const int64_t head = experts ? s.offsets[0] : bound, tail = experts ? s.offsets[experts] : bound;
    std::fill(y, y + head * out, T(0));
    std::fill(y + tail * out, y + bound * out, T(0));
  });
}

void GroupedOuter::launch(const Call& c, const Op& op) {
  if (!c.wanted(0)) return;
  const int64_t bound = std::min(c.dim(0, 0), c.dim(1, 0)), o = c.dim(0, 1), i = c.dim(1, 1), experts = op.experts;
  const Segments s = segments(c, "grouped_outer", experts, bound);
  // Units: `kBlockRows` rows of an expert's result; the result is a sum over the segment, so the segment stays whole.
  const int64_t slices = (o + kBlockRows - 1) / kBlockRows;
  std::vector<double> cost(size_t(experts * slices));
  for (int64_t u = 0; u < experts * slices; ++u)
    cost[size_t(u)] = (double(s.offsets[u / slices + 1] - s.offsets[u / slices]) + 16) *
                      double(std::min(kBlockRows, o - u % slices * kBlockRows)) * double(i);
  floats(c.in(0).dtype, [&]<class T>() {
    const T *a = c.get<T>(0), *b = c.get<T>(1);
    T* y = c.put<T>(0);
    share(c, cost, [&](int64_t first, int64_t last, int32_t) {
      for (int64_t u = first; u < last; ++u) {
        const int64_t e = u / slices, from = u % slices * kBlockRows, rows = std::min(kBlockRows, o - from);
        const int64_t begin = s.offsets[e], end = s.offsets[e + 1];
        T* at = y + (e * o + from) * i;
        if (begin == end && !c.adds(0)) std::fill(at, at + rows * i, T(0));
        // A few rows of the result at a time: they are written once, in order, while b's segment stays in the cache.
        for (int64_t r = begin; r < end; r += kBlockDepth)
          for (int64_t x = 0; x < rows; x += kResultRows)
            multiply(std::min(rows - x, kResultRows), i, std::min(end - r, kBlockDepth),
                     Left<T>{a + r * o + from + x, 1, o}, b + r * i, i, at + x * i, i, c.adds(0) || r > begin);
      }
    });
  });
}

}  // namespace kb::cpu
