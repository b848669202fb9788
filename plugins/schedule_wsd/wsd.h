// wsd.h: the factor on the learning rate, step by step; README.md states the rule.
#pragma once
#include "kitbash/plugin.h"

struct Wsd : kb::Schedule<Wsd> {
  double warmup = 0.01, decay = 0.1, floor = 0.1;

  void check() const {
    if (warmup + decay > 1)
      kb::fail("warmup + decay must be at most 1 but got ", warmup, " + ", decay, "; lower one of them");
  }
  double at(int64_t step, int64_t steps) const {
    const int64_t w = std::llround(warmup * double(steps)), d = std::llround(decay * double(steps));
    if (step < w) return double(step + 1) / double(w);
    if (step < steps - d) return 1;
    return floor + (1 - floor) * double(steps - 1 - step) / double(d);
  }
};
KITBASH_SCHEMA(Wsd, field("warmup", &Self::warmup, "share of the steps that warm up").range(0, 0.99),
               field("decay", &Self::decay, "share of the steps, at the end, that decay").range(0, 1),
               field("floor", &Self::floor, "share of the peak at the last step").range(0, 1))
