// elements_reference.h: the element kernels once more as plain loops in double, for tests.
#pragma once
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/support/kernel_call.h"

namespace kb::cpu::reference {
using kbtest::Array;

// Index in `to` of element `flat` of `from`, where `to` broadcasts to `from`.
inline int64_t map_index(int64_t flat, const kb_type& from, const kb_type& to) {
  int64_t at[KB_MAX_RANK] = {}, index = 0, stride = 1;
  for (int d = from.rank - 1; d >= 0; --d) at[d] = flat % from.shape[d], flat /= from.shape[d];
  for (int k = 1; k <= to.rank; ++k) {
    if (to.shape[to.rank - k] != 1) index += at[from.rank - k] * stride;
    stride *= to.shape[to.rank - k];
  }
  return index;
}
template <class F>
void binary(const Array& a, const Array& b, Array& y, F&& f) {
  for (int64_t i = 0; i < y.size(); ++i)
    y.set(i, f(a.at(map_index(i, y.type, a.type)), b.at(map_index(i, y.type, b.type))));
}
inline void sum_to(const Array& x, Array& y) {
  std::vector<long double> s(size_t(y.size()), 0.0L);
  for (int64_t i = 0; i < x.size(); ++i) s[size_t(map_index(i, x.type, y.type))] += x.at(i);
  for (int64_t i = 0; i < y.size(); ++i) y.set(i, double(s[size_t(i)]));
}
// f(values of the axis) for each place of the other axes.
template <class F>
void reduce(const Array& x, int axis, Array& y, F&& f) {
  int64_t outer = 1, inner = 1, width = x.type.shape[axis];
  for (int d = 0; d < axis; ++d) outer *= x.type.shape[d];
  for (int d = axis + 1; d < x.type.rank; ++d) inner *= x.type.shape[d];
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < inner; ++i) {
      std::vector<double> v;
      for (int64_t w = 0; w < width; ++w) v.push_back(x.at((o * width + w) * inner + i));
      y.set(o * inner + i, f(v));
    }
}
inline void softmax(const Array& x, Array& y) {
  const int64_t n = x.type.shape[x.type.rank - 1];
  for (int64_t r = 0; r < x.size() / n; ++r) {
    double peak = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; ++i) peak = std::max(peak, x.at(r * n + i));
    for (int64_t i = 0; i < n; ++i) sum += std::exp(x.at(r * n + i) - peak);
    for (int64_t i = 0; i < n; ++i) y.set(r * n + i, std::exp(x.at(r * n + i) - peak) / sum);
  }
}
inline void permute(const Array& x, const kb::Shape& axes, Array& y) {
  int64_t stride[KB_MAX_RANK], s = 1;
  for (int d = x.type.rank - 1; d >= 0; --d) stride[d] = s, s *= x.type.shape[d];
  for (int64_t i = 0; i < y.size(); ++i) {
    int64_t flat = i, from = 0;
    for (int d = y.type.rank - 1; d >= 0; --d)
      from += flat % y.type.shape[d] * stride[axes.at[d]], flat /= y.type.shape[d];
    y.set(i, x.at(from));
  }
}
inline void topk(const Array& x, int64_t k, Array& value, Array& id) {
  const int64_t n = x.type.shape[1];
  for (int64_t r = 0; r < x.type.shape[0]; ++r) {
    std::vector<int> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      const double u = x.at(r * n + a), v = x.at(r * n + b);
      return u > v || (std::isnan(v) && !std::isnan(u));
    });
    for (int64_t j = 0; j < k; ++j)
      value.set(r * k + j, x.at(r * n + order[size_t(j)])), id.set(r * k + j, order[size_t(j)]);
  }
}
inline void rms_norm(const Array& x, const Array& w, double eps, Array& y) {
  const int64_t n = w.size();
  for (int64_t r = 0; r < x.size() / n; ++r) {
    double s = 0;
    for (int64_t i = 0; i < n; ++i) s += x.at(r * n + i) * x.at(r * n + i);
    for (int64_t i = 0; i < n; ++i) y.set(r * n + i, w.at(i) * x.at(r * n + i) / std::sqrt(s / double(n) + eps));
  }
}
inline void rms_norm_backward(const Array& x, const Array& w, const Array& dy, double eps, Array& dx, Array& dw) {
  const int64_t n = w.size();
  std::vector<double> sum(static_cast<size_t>(n), 0.0);
  for (int64_t r = 0; r < x.size() / n; ++r) {
    double s = 0, dot = 0;
    for (int64_t i = r * n; i < (r + 1) * n; ++i) s += x.at(i) * x.at(i), dot += x.at(i) * w.at(i % n) * dy.at(i);
    const double k = 1 / std::sqrt(s / double(n) + eps);
    for (int64_t i = r * n; i < (r + 1) * n; ++i) {
      dx.set(i, k * w.at(i % n) * dy.at(i) - x.at(i) * k * k * k * dot / double(n));
      sum[size_t(i % n)] += dy.at(i) * x.at(i) * k;
    }
  }
  for (int64_t i = 0; i < n; ++i) dw.set(i, sum[size_t(i)]);
}
// state: absent (empty bytes), or changed in place; slot: absent, or a row of the state for each document.
inline void short_conv(const Array& x, const Array& w, const Array& cu, Array& state, const Array& slot, Array& y) {
  const int64_t n = w.type.shape[0], taps = w.type.shape[1];
  const bool kept = !state.bytes.empty();
  const Array before = state;
  for (int64_t d = 0; d + 1 < cu.size(); ++d) {
    const int64_t begin = int64_t(cu.at(d)), end = int64_t(cu.at(d + 1)),
                  s = slot.bytes.empty() ? d : int64_t(slot.at(d));
    const auto at = [&](int64_t t, int64_t c) {
      if (t >= begin) return x.at(t * n + c);
      return kept ? before.at((s * (taps - 1) + t - begin + taps - 1) * n + c) : 0.0;
    };
    for (int64_t c = 0; c < n; ++c) {
      for (int64_t t = begin; t < end; ++t) {
        double v = 0;
        for (int64_t j = 0; j < taps; ++j) v += w.at(c * taps + j) * at(t - taps + 1 + j, c);
        y.set(t * n + c, v);
      }
      if (kept && end > begin)
        for (int64_t j = 0; j + 1 < taps; ++j) state.set((s * (taps - 1) + j) * n + c, at(end - taps + 1 + j, c));
    }
  }
}
inline void short_conv_backward(const Array& x, const Array& w, const Array& cu, const Array& dy, Array& dx,
                                Array& dw) {
  const int64_t n = w.type.shape[0], taps = w.type.shape[1];
  std::vector<double> gx(size_t(x.size()), 0.0), gw(size_t(w.size()), 0.0);
  for (int64_t d = 0; d + 1 < cu.size(); ++d)
    for (int64_t t = int64_t(cu.at(d)); t < int64_t(cu.at(d + 1)); ++t)
      for (int64_t j = 0; j < taps; ++j) {
        const int64_t s = t - taps + 1 + j;
        for (int64_t c = 0; c < n && s >= int64_t(cu.at(d)); ++c) {
          gx[size_t(s * n + c)] += w.at(c * taps + j) * dy.at(t * n + c);
          gw[size_t(c * taps + j)] += x.at(s * n + c) * dy.at(t * n + c);
        }
      }
  for (int64_t i = 0; i < dx.size(); ++i) dx.set(i, gx[size_t(i)]);
  for (int64_t i = 0; i < dw.size(); ++i) dw.set(i, gw[size_t(i)]);
}
inline void expert_sort(const Array& ids, int64_t experts, int64_t tile, Array& source, Array& offsets) {
  int64_t at = 0;
  for (int64_t r = 0; r < source.size(); ++r) source.set(r, -1);
  for (int64_t e = 0; e < experts; ++e) {
    offsets.set(e, double(at));
    for (int64_t i = 0; i < ids.size(); ++i)
      if (int64_t(ids.at(i)) == e) source.set(at++, double(i));
    at = (at + tile - 1) / tile * tile;
  }
  offsets.set(experts, double(at));
}

}  // namespace kb::cpu::reference
