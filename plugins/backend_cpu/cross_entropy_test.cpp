// The loss against the plain loops. Tolerances: double 1e-12; float 2e-6: a logit carries 6e-8 of its size, a
// probability 1 ulp.
#include <gtest/gtest.h>

#include "cross_entropy.h"
#include "reference.h"
#include "tests/support/kernel_call.h"

namespace kb::cpu {
namespace {
using kbtest::Array;
using kbtest::array;
using kbtest::normal;

struct Loss {
  Array x, target, weight;
  std::vector<Array> out;
  std::vector<Array> gradient;
  double want;
  Array want_lse, want_dx;
};

Loss make(uint32_t dtype, int64_t rows, int64_t n, double size) {
  Loss l{normal(dtype, {rows, n}, 1, size), array(KB_I32, {rows}), array(dtype, {rows}), {}, {}, 0, {}, {}};
  for (int64_t r = 0; r < rows; ++r) {
    l.target.set(r, r % 5 == 3 ? -1 : double((r * 7 + 1) % n));
    l.weight.set(r, r % 4 == 2 ? 0 : 0.5 + 0.25 * double(r % 3));
  }
  l.want_lse = array(KB_F64, {rows}), l.want_dx = array(KB_F64, {rows, n});
  l.out = {array(dtype, {}), array(dtype, {rows})};
  l.gradient = {array(dtype, {rows, n})};
  return l;
}
void refer(Loss& l, uint32_t dtype) {
  floats(dtype, [&]<class T>() {
    l.want = reference::cross_entropy<T>(l.x.type.shape[0], l.x.type.shape[1], l.x.data<T>(), l.target.data<int32_t>(),
                                         l.weight.data<T>(), l.want_lse.data<double>(), l.want_dx.data<double>());
  });
}
void run(Loss& l, uint32_t dtype, const kbtest::Options& o = {}) {
  kbtest::run(kernel_table<CrossEntropy>(), {}, {&l.x, &l.target, &l.weight}, l.out, o);
  const Array up = array(dtype, {}, {1});
  kbtest::run(kernel_table<CrossEntropyBackward>(), {}, {&l.x, &l.target, &l.weight, &l.out[1], &up}, l.gradient, o);
}

TEST(CrossEntropy, EqualsThePlainLoops) {
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (int64_t rows : {1, 2, 17, 65})
      for (int64_t n : {1, 2, 3, 17, 64, 127, 1000})
        for (double size : {1.0, 1e4}) {
          Loss l = make(dtype, rows, n, size);
          refer(l, dtype);
          run(l, dtype);
          const double tolerance = dtype == KB_F64 ? 1e-12 : 2e-6;
          EXPECT_LE(std::abs(l.out[0].at(0) - l.want), tolerance * std::max(size, std::abs(l.want)))
              << rows << "x" << n;
          EXPECT_LE(kbtest::relative_error(l.out[1], l.want_lse), tolerance) << rows << "x" << n << " size " << size;
          // lse is float: off by 6e-8 of 1e4, and every probability with it
          EXPECT_LE(kbtest::relative_error(l.gradient[0], l.want_dx, 1), tolerance * (dtype == KB_F64 ? 10 : size))
              << rows << "x" << n << " size " << size;
        }
}

TEST(CrossEntropy, RowsPastTheExtentCountNothing) {
  Loss l = make(KB_F32, 40, 33, 1), small = make(KB_F32, 25, 33, 1);
  for (int64_t i = 0; i < small.x.size(); ++i) small.x.set(i, l.x.at(i));
  refer(small, KB_F32);
  l.x.type.extent = 1;
  for (int64_t r = 25; r < 40; ++r) l.target.set(r, 99);  // not even looked at
  kbtest::Options o;
  o.extents = {0, 25};
  run(l, KB_F32, o);
  EXPECT_NEAR(l.out[0].at(0), small.want, 1e-4);
}

TEST(CrossEntropy, BitsDoNotDependOnTheThreadCount) {
  Loss a = make(KB_F32, 64, 2000, 1), b = make(KB_F32, 64, 2000, 1);
  kbtest::Options one;
  one.threads = 1;
  run(a, KB_F32), run(b, KB_F32, one);
  EXPECT_EQ(a.out[0].bytes, b.out[0].bytes);
  EXPECT_EQ(a.gradient[0].bytes, b.gradient[0].bytes);
}

TEST(CrossEntropy, ComputesWhatIsWantedAlone) {
  Loss all = make(KB_F32, 17, 33, 1), part = make(KB_F32, 17, 33, 1);
  run(all, KB_F32);
  for (uint64_t unwanted : {1, 2}) {
    kbtest::Options o;
    o.unwanted = unwanted;
    kbtest::run(kernel_table<CrossEntropy>(), {}, {&part.x, &part.target, &part.weight}, part.out, o);
    EXPECT_EQ(part.out[2 - unwanted].bytes, all.out[2 - unwanted].bytes);
  }
}

TEST(CrossEntropy, NamesTheRowWhoseTargetIsOutOfRange) {
  Loss l = make(KB_F32, 6, 9, 1);
  l.target.set(4, 9);
  try {
    run(l, KB_F32);
    FAIL() << "a target past the vocabulary was accepted";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("target of row 4 must be below the 9 logits but is 9"), std::string::npos)
        << e.what();
  }
}

TEST(CrossEntropy, NanInALogitReachesTheLoss) {
  Loss l = make(KB_F32, 2, 40, 1);
  l.x.set(5, NAN);
  run(l, KB_F32);
  EXPECT_TRUE(std::isnan(l.out[0].at(0)));
}

}  // namespace
}  // namespace kb::cpu
