// shares.h: units of unequal cost over the team. Each thread gets a run of consecutive units; a unit is never cut, so a
// result that only its own unit writes has the same bits for any thread count.
#pragma once
#include <vector>

#include "kitbash/op.h"

namespace kb::cpu {

// border [threads + 1]: thread t gets units [border[t], border[t + 1]): those whose middle lies in its equal part of
// the cost.
inline std::vector<int64_t> share_borders(const std::vector<double>& cost, int64_t threads) {
  const int64_t n = int64_t(cost.size());
  double total = 0, sum = 0;
  for (double x : cost) total += x;
  std::vector<int64_t> border(size_t(threads) + 1, n);
  border[0] = 0;
  int64_t t = 1;
  for (int64_t i = 0; i < n && t < threads; ++i) {
    while (t < threads && sum + 0.5 * cost[size_t(i)] >= total * double(t) / double(threads)) border[size_t(t++)] = i;
    sum += cost[size_t(i)];
  }
  return border;
}

// f(first, last, thread) on runs of units; cost[i] >= 0 is the work of unit i in multiply-adds. Little work stays on
// one thread.
template <class F>
void share(const Call& c, const std::vector<double>& cost, F&& f) {
  if (cost.empty()) return;
  double total = 0;
  for (double x : cost) total += x;
  constexpr double kWorthAThread = 100e3;
  const int64_t threads = std::min<int64_t>(c.threads(), std::max<int64_t>(1, int64_t(total / kWorthAThread)));
  if (threads == 1) return f(int64_t(0), int64_t(cost.size()), int32_t(0));
  const std::vector<int64_t> border = share_borders(cost, threads);
  c.parallel(threads, 1, [&](int64_t first, int64_t last, int32_t) {
    for (int64_t p = first; p < last; ++p)
      if (border[size_t(p)] < border[size_t(p) + 1]) f(border[size_t(p)], border[size_t(p) + 1], int32_t(p));
  });
}

inline void decline_bf16(const Call& c, const char* op) {
  for (uint32_t i = 0; i < c.n_in(); ++i)
    if (c.has(i) && c.in(i).dtype == KB_BF16)
      fail("[", op, "] input ", i, " must be f32 or f64 on the cpu but got bf16; set the compute type to f32");
}

}  // namespace kb::cpu
