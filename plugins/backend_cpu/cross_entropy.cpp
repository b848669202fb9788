#include "cross_entropy.h"

#include <cmath>

#include "shares.h"
#include "softmax_tile.h"

namespace kb::cpu {
namespace {

constexpr int64_t kWorkARound = 16384;  // logits that are worth a thread

int64_t grain(int64_t vocabulary) { return std::max<int64_t>(1, kWorkARound / std::max<int64_t>(1, vocabulary)); }

template <class T>
bool counts(const Call& c, int64_t row, const char* op) {
  const int32_t target = c.get<int32_t>(1)[row];
  if (target >= c.dim(0, 1))
    fail("[", op, "] the target of row ", row, " must be below the ", c.dim(0, 1), " logits but is ", target,
         "; check the tokenizer against the model's vocabulary");
  return target >= 0 && (!c.has(2) || c.get<T>(2)[row] != T(0));
}
template <class T>
double weight(const Call& c, int64_t row) {
  return c.has(2) ? double(c.get<T>(2)[row]) : 1.0;
}

}  // namespace

void CrossEntropy::supports(const Call& c, const Op&) { decline_bf16(c, "cross_entropy"); }
void CrossEntropyBackward::supports(const Call& c, const Op&) { decline_bf16(c, "cross_entropy_backward"); }

uint64_t CrossEntropy::workspace(const Call& c, const Op&) { return uint64_t(c.dim(0, 0)) * sizeof(double); }

void CrossEntropy::launch(const Call& c, const Op&) {
  const int64_t rows = c.rows(c.in(0)), n = c.dim(0, 1);
  double* losses = c.workspace<double>();  // [rows], added in order whatever the thread count
  floats(c.in(0).dtype, [&]<class T>() {
    T* lse = c.put<T>(1);
    c.parallel(rows, grain(n), [&](int64_t first, int64_t last, int32_t) {
      for (int64_t r = first; r < last; ++r) {
        losses[r] = 0;
        if (lse) lse[r] = T(0);
        if (!counts<T>(c, r, "cross_entropy")) continue;
        const T* x = c.get<T>(0) + r * n;
        const T top = max_row(x, n);
        const double z = double(top) + std::log(exp_row<T>(x, n, top, nullptr));
        if (lse) lse[r] = T(z);
        losses[r] = weight<T>(c, r) * (z - double(x[c.get<int32_t>(1)[r]]));
      }
    });
    if (!c.wanted(0)) return;
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r) sum += losses[r];
    *c.put<T>(0) = T(sum);
  });
}

void CrossEntropyBackward::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  const int64_t rows = c.rows(c.in(0)), n = c.dim(0, 1);
  floats(c.in(0).dtype, [&]<class T>() {
    const double up = double(*c.get<T>(4));
    c.parallel(rows, grain(n), [&](int64_t first, int64_t last, int32_t) {
      for (int64_t r = first; r < last; ++r) {
        T* dx = c.put<T>(0) + r * n;
        if (!counts<T>(c, r, "cross_entropy_backward")) {
          std::fill(dx, dx + n, T(0));
          continue;
        }
        const T* x = c.get<T>(0) + r * n;
        const T by = T(up * weight<T>(c, r)), lse = c.get<T>(3)[r];
        const int32_t target = c.get<int32_t>(1)[r];
        // p - 1 without cancellation when p is near 1 costs a pass; the float error of p is at most 1 ulp of 1, as is
        // right.
        scaled_exp_row(x, n, lse, by, dx);
        dx[target] -= by;
      }
    });
  });
}

}  // namespace kb::cpu
