// Quantile balancing: the bias of the next step is, for each expert, the quantile over all tokens of this step of the
// bias that it would have needed to be chosen. Counted during the step, estimated in `update`, never applied to its own
// batch.
#include "quantile_cpu.h"
using kb::Value;

struct Quantile : kb::Router<Quantile> {
  kb::Text estimator = "histogram";
  int64_t bins = 1000, capacity = 0;
  double ema = 0, std = 0.02;

  kb::Routed route(kb::Builder& b, Value x, Value document, int64_t experts, int64_t active) const {
    const Value w = b.param("", b.normal({experts, x.dim(1)}, std), {.dtype = KB_WIDE});
    return choose(b, b.sigmoid(b.linear(b.wide(x), w)), document, experts, active);
  }

  kb::Routed choose(kb::Builder& b, Value scores, Value document, int64_t experts, int64_t active) const {
    if (active >= experts) kb::fail("active must be below experts but got ", active, " of ", experts);
    const Value bias = b.state("bias", KB_STATE_MODEL, {experts});
    const kb::Values top = b.topk(scores + bias, active + 1);  // the last one is the cutoff
    const Value ids = b.slice(top[1], 1, 0, active);
    if (b.training()) {
      const Value cutoff = b.slice(top[0], 1, active, active + 1);
      count(b, scores, cutoff, document, bias, experts);
      const Value load = b.state("load", KB_STATE_STEP, {experts}, KB_I32);
      b.write(load, b.emit(ExpertLoad::name, {load, ids, document}));
    }
    const Value p = b.take(scores, ids);  // the raw scores: the bias decides who is chosen, never with what weight
    return {ids, p / (b.sum(p, 1, true) + 1e-20)};
  }

  void update(kb::Builder& b) const {  // the host sets the statistics back to 0 afterwards
    const Value bias = b.find("bias"), counts = b.find("counts"), margins = b.find("margins"), load = b.find("load");
    if (!load) return;  // never built for training
    const int64_t active = b.integer("active");
    b.report("load", b.all_reduce(load, "sum"));
    if (counts) {
      b.write(bias,
              b.emit(QuantileEstimate::name, {b.all_reduce(counts, "sum"), bias}, {{"active", active}, {"ema", ema}}));
    } else {
      const Value filled = b.find("filled");
      b.write(bias, b.emit(QuantileExact::name, {margins, filled, b.all_reduce(filled, "sum"), bias},
                           {{"active", active}, {"ema", ema}}));
    }
  }

 private:
  void count(kb::Builder& b, Value scores, Value cutoff, Value document, Value bias, int64_t experts) const {
    if (estimator == "histogram") {
      const Value counts = b.state("counts", KB_STATE_STEP, {experts, bins}, KB_I32);
      b.write(counts, b.emit(QuantileCount::name, {counts, scores, cutoff, document, bias}));
      return;
    }
    const int64_t rows = capacity ? capacity : scores.dim(0);
    const Value margins = b.state("margins", KB_STATE_STEP, {rows, experts});
    const Value filled = b.state("filled", KB_STATE_STEP, {1}, KB_I32);
    const kb::Values now = b.emit_n(QuantileAppend::name, {margins, filled, scores, cutoff, document});
    b.write(margins, now[0]);
    b.write(filled, now[1]);
  }
};
KITBASH_SCHEMA(Quantile,
               field("estimator", &Self::estimator,
                     "histogram: any number of micro-batches and ranks; exact: keeps all margins")
                   .one_of("histogram", "exact"),
               field("bins", &Self::bins, "histogram: bins over the range of the needed bias").range(16, 65536),
               field("capacity", &Self::capacity, "exact: tokens of a step that fit; 0: those of one micro-batch")
                   .range(0, 1 << 30),
               field("ema", &Self::ema, "share of the old bias that is kept").range(0, 1),
               field("std", &Self::std, "standard deviation of the projection at the start").range(0, 10))

KITBASH_PLUGIN("router-quantile", "0.1.0", "Apache-2.0", component<Quantile>("quantile"), op<QuantileCount>(),
               op<QuantileEstimate>(), op<QuantileAppend>(), op<QuantileExact>(), op<ExpertLoad>(),
               kernel<QuantileCountCpu>(), kernel<QuantileEstimateCpu>(), kernel<QuantileAppendCpu>(),
               kernel<QuantileExactCpu>(), kernel<ExpertLoadCpu>())
