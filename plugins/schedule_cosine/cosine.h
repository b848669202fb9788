// cosine.h: the factor on the learning rate, step by step; README.md states the rule.
#pragma once
#include "kitbash/plugin.h"

struct Cosine : kb::Schedule<Cosine> {
  double warmup = 0.01, floor = 0.1;

  double at(int64_t step, int64_t steps) const {
    const int64_t w = std::llround(warmup * double(steps));  // steps of warm-up
    if (step < w) return double(step + 1) / double(w);
    const int64_t peak = std::max<int64_t>(w - 1, 0), last = steps - 1;
    if (last <= peak) return 1;  // a run of one step
    const double turn = 3.14159265358979323846 * double(step - peak) / double(last - peak);
    return floor + (1 - floor) * 0.5 * (1 + std::cos(turn));
  }
};
KITBASH_SCHEMA(Cosine, field("warmup", &Self::warmup, "share of the steps that warm up").range(0, 0.99),
               field("floor", &Self::floor, "share of the peak at the last step").range(0, 1))
