// adamw_reference.h: the formula as it is written, one element at a time.
#pragma once
#include "adamw_step.h"

template <class T>
void adamw_reference(const AdamwStep& o, double lr, double step, const T* g, int64_t n, T* w, T* m, T* v) {
  for (int64_t i = 0; i < n; ++i) {
    m[i] = T(o.beta1 * m[i] + (1 - o.beta1) * g[i]);
    v[i] = T(o.beta2 * v[i] + (1 - o.beta2) * g[i] * g[i]);
    const double mean = m[i] / (1 - std::pow(o.beta1, step)), square = v[i] / (1 - std::pow(o.beta2, step));
    w[i] = T(w[i] - lr * (mean / (std::sqrt(square) + o.eps) + o.decay * w[i]));
  }
}
