// quantile_ops.h: the ops of quantile balancing. In all of them: scores [tokens, experts] and bias [experts] are of one
// wide type, cutoff [tokens, 1] is the (k+1)-th biased score, and rows of document [tokens] i32 below 0 count nowhere.
#pragma once
#include "kitbash/plugin.h"

// counts [experts, bins] i32, scores, cutoff, document, bias -> counts, in place: cutoff - score, the bias that an
// expert would have needed, in uniform bins over [min(bias) - 1, max(bias) + 1]. Integers: no order of micro-batches
// matters.
struct QuantileCount {
  static constexpr const char* name = "quantile_count";
  void infer(kb::Infer& s) const;
  double flops(const kb::Call& c) const { return 4.0 * double(kb::elements(c.in(1))); }
};

// What both estimators share: q = tokens * active / experts is the load of an expert, ema the share of the old bias
// that is kept; the result is centred on 0. With no token counted the bias comes back as it was.
struct QuantileEstimator {
  int64_t active = 1;
  double ema = 0;
};

// counts [experts, bins], bias -> bias: the q-th smallest needed bias, interpolated inside its bin.
struct QuantileEstimate : QuantileEstimator {
  static constexpr const char* name = "quantile_estimate";
  void infer(kb::Infer& s) const;
  double flops(const kb::Call& c) const { return double(kb::elements(c.in(0))); }
};
KITBASH_ATTRS(QuantileEstimate, attr("active", &Self::active), attr("ema", &Self::ema))

// margins [capacity, experts], filled [1] i32, scores, cutoff, document -> margins, filled, in place: score - cutoff of
// the counted tokens, row after row. More tokens than capacity are an error.
struct QuantileAppend {
  static constexpr const char* name = "quantile_append";
  void infer(kb::Infer& s) const;
  double flops(const kb::Call& c) const { return double(kb::elements(c.in(2))); }
};

// margins [capacity, experts], filled [1] i32, total [1] i32 (filled, summed over ranks), bias -> bias: minus the
// (q+1)-th largest margin. The margins of other ranks are not here: total must equal filled.
struct QuantileExact : QuantileEstimator {
  static constexpr const char* name = "quantile_exact";
  void infer(kb::Infer& s) const;
  double flops(const kb::Call& c) const { return 3.0 * double(kb::elements(c.in(0))); }
};
KITBASH_ATTRS(QuantileExact, attr("active", &Self::active), attr("ema", &Self::ema))

// load [experts] i32, ids [tokens, k] i32, document -> load, in place: assignments of each expert.
struct ExpertLoad {
  static constexpr const char* name = "expert_load";
  void infer(kb::Infer& s) const;
  double flops(const kb::Call& c) const { return double(kb::elements(c.in(1))); }
};
