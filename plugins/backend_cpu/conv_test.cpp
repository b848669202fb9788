#include "conv.h"

#include <gtest/gtest.h>

#include "elements_reference.h"

using namespace kb::cpu;
using kbtest::Array;
using kbtest::array;
using kbtest::normal;
using kbtest::run;

namespace {

double tolerance(uint32_t dtype) { return dtype == KB_F32 ? 1e-6 : 1e-14; }
const std::vector<std::vector<double>>& packings() {
  static const std::vector<std::vector<double>> p = {
      {0, 1}, {0, 2, 2, 3, 65}, {0, 1, 2, 4, 7, 12, 300}, {0, 700}, {0, 0, 5, 5}};
  return p;
}

TEST(ShortConv, AgreesWithTheReferenceOverPackingsTapsAndStates) {
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (const auto& p : packings())
      for (int64_t n : {1, 3, 17, 64, 65, 1000})
        for (int64_t taps : {1, 2, 4, 5})
          for (int mode : {0, 1, 2}) {  // without a state; with one; with slots in another order
            const int64_t T = int64_t(p.back()), docs = int64_t(p.size()) - 1;
            if (T * n > 100000 && (taps != 4 || mode == 1)) continue;
            const Array x = normal(dtype, {T, n}, 1), w = normal(dtype, {n, taps}, 2),
                        cu = array(KB_I32, {docs + 1}, p);
            Array slot = kbtest::absent(), state = kbtest::absent();
            if (mode) state = normal(dtype, {docs + 2, taps - 1, n}, 3);
            if (mode == 2) {
              slot = array(KB_I32, {docs});
              for (int64_t d = 0; d < docs; ++d) slot.set(d, double(docs + 1 - d));
            }
            std::vector<Array> out{array(dtype, {T, n})};
            if (mode) out.push_back(state);
            Array want = out[0], want_state = state;
            reference::short_conv(x, w, cu, want_state, slot, want);
            std::vector<const Array*> in = {&x, &w, &cu};
            if (mode) in.push_back(&out[1]);  // in place
            if (mode == 2) in.push_back(&slot);
            run(kb::kernel_table<ShortConvKernel>(), {}, in, out, {{}, mode ? 2u : 0u});
            ASSERT_LE(kbtest::relative_error(out[0], want), tolerance(dtype))
                << T << " " << n << " " << taps << " " << mode;
            if (mode) {
              ASSERT_EQ(out[1].bytes, want_state.bytes) << T << " " << n << " " << taps;
            }
          }
}

TEST(ShortConv, CarriesItsStateAcrossACut) {
  const int64_t n = 33;
  const Array x = normal(KB_F64, {20, n}, 1), w = normal(KB_F64, {n, 4}, 2), whole = array(KB_I32, {2}, {0, 20});
  std::vector<Array> y{array(KB_F64, {20, n})};
  run(kb::kernel_table<ShortConvKernel>(), {}, {&x, &w, &whole}, y);
  for (int64_t cut = 1; cut < 20; ++cut) {
    std::vector<Array> out{array(KB_F64, {cut, n}), array(KB_F64, {1, 3, n})};
    for (int part : {0, 1}) {
      const int64_t from = part ? cut : 0, len = part ? 20 - cut : cut;
      Array piece = array(KB_F64, {len, n});
      std::memcpy(piece.bytes.data(), x.bytes.data() + from * n * 8, piece.bytes.size());
      const Array cu = array(KB_I32, {2}, {0, double(len)});
      out[0] = piece;
      run(kb::kernel_table<ShortConvKernel>(), {}, {&piece, &w, &cu, &out[1]}, out, {{}, 2});
      for (int64_t i = 0; i < len * n; ++i) ASSERT_EQ(out[0].at(i), y[0].at(from * n + i));
    }
  }
}

TEST(ShortConvBackward, AgreesWithTheReferenceAndAccumulates) {
  for (uint32_t dtype : {KB_F32, KB_F64})
    for (const auto& p : packings())
      for (int64_t n : {1, 3, 17, 64, 65, 600})
        for (int64_t taps : {1, 2, 4, 5}) {
          const int64_t T = int64_t(p.back());
          const Array x = normal(dtype, {T, n}, 1), w = normal(dtype, {n, taps}, 2), dy = normal(dtype, {T, n}, 3);
          const Array cu = array(KB_I32, {int64_t(p.size())}, p);
          std::vector<Array> d{array(dtype, {T, n}), array(dtype, {n, taps})};
          Array want_dx = d[0], want_dw = d[1];
          reference::short_conv_backward(x, w, cu, dy, want_dx, want_dw);
          run(kb::kernel_table<ShortConvBackwardKernel>(), {}, {&x, &w, &cu, &dy}, d);
          ASSERT_LE(kbtest::relative_error(d[0], want_dx), tolerance(dtype));
          ASSERT_LE(kbtest::relative_error(d[1], want_dw), 4 * tolerance(dtype));  // sums that partly cancel
          std::vector<Array> again{d[0], d[1]};
          run(kb::kernel_table<ShortConvBackwardKernel>(), {}, {&x, &w, &cu, &dy}, again, {{}, 2, 1, 2});
          for (int64_t i = 0; i < n * taps; ++i)
            ASSERT_NEAR(again[1].at(i), 2 * d[1].at(i), 1e-5 * std::fabs(d[1].at(i)) + 1e-12);
        }
}

TEST(ShortConv, RefusesBrokenDocumentsAndSlots) {
  const Array x = normal(KB_F32, {4, 2}, 1), w = normal(KB_F32, {2, 4}, 2), falling = array(KB_I32, {3}, {0, 3, 2});
  std::vector<Array> y{array(KB_F32, {4, 2})};
  EXPECT_THROW(run(kb::kernel_table<ShortConvKernel>(), {}, {&x, &w, &falling}, y), kb::Error);
  const Array past = array(KB_I32, {2}, {0, 5});
  EXPECT_THROW(run(kb::kernel_table<ShortConvKernel>(), {}, {&x, &w, &past}, y), kb::Error);
  const Array cu = array(KB_I32, {2}, {0, 4}), slot = array(KB_I32, {1}, {7}), state = normal(KB_F32, {2, 3, 2}, 3);
  y.push_back(state);
  EXPECT_THROW(run(kb::kernel_table<ShortConvKernel>(), {}, {&x, &w, &cu, &state, &slot}, y), kb::Error);
}

}  // namespace
