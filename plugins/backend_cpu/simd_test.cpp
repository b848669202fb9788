// The vector kernels give the plain loops' numbers on every instruction set that this machine can run.
#include <gtest/gtest.h>

#include "gemm.h"
#include "hwy/targets.h"
#include "softmax_tile.h"
#include "tests/support/kernel_call.h"

namespace kb::cpu {
namespace {

template <class F>
void on_each_target(F f) {
  const int64_t all = hwy::SupportedTargets();
  for (int64_t left = all; left; left &= left - 1) {
    hwy::SetSupportedTargetsForTest(left & -left);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    f(hwy::TargetName(left & -left));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

template <class T>
void check(const char* target) {
  const double eps = sizeof(T) == 8 ? 1e-13 : 1e-5;
  const uint32_t dtype = sizeof(T) == 8 ? KB_F64 : KB_F32;
  for (int64_t m : {1, 3, 4, 9, 17})
    for (int64_t n : {1, 2, 7, 16, 33})
      for (int64_t k : {1, 5, 40}) {
        const auto a = kbtest::normal(dtype, {m, k}, 1), b = kbtest::normal(dtype, {k, n}, 2);
        auto c = kbtest::array(dtype, {m, n}), bt = kbtest::array(dtype, {n, k}), e = c;
        multiply(m, n, k, Left<T>{a.data<T>(), k, 1}, b.data<T>(), n, c.data<T>(), n, false);
        transpose(k, n, b.data<T>(), n, bt.data<T>(), k, T(1), k);
        multiply_dots(m, n, k, a.data<T>(), k, bt.data<T>(), k, e.data<T>(), n, false);
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            double s = 0;
            for (int64_t l = 0; l < k; ++l) s += a.at(i * k + l) * b.at(l * n + j);
            ASSERT_NEAR(c.at(i * n + j), s, eps * double(k)) << target;
            ASSERT_NEAR(e.at(i * n + j), s, eps * double(k)) << target;
          }
      }
  for (int64_t n : {1, 3, 16, 77}) {
    const auto x = kbtest::normal(dtype, {n}, 5, 20);
    auto y = kbtest::array(dtype, {n});
    const T top = max_row(x.data<T>(), n);
    const double sum = exp_row(x.data<T>(), n, top, y.data<T>());
    double want = 0;
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_LE(x.at(i), double(top)) << target;
      const double p = std::exp(x.at(i) - double(top));
      ASSERT_NEAR(y.at(i), p, eps * p) << target;
      want += p;
    }
    EXPECT_NEAR(sum, want, eps * want) << target;
  }
}

TEST(Simd, EveryInstructionSetGivesThePlainNumbers) {
  on_each_target([](const char* target) {
    check<float>(target);
    check<double>(target);
  });
}

}  // namespace
}  // namespace kb::cpu
