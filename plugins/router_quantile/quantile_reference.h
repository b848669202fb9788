// quantile_reference.h: quantile balancing as the formulas say it, one number after the other. T: the type that margins
// and bins are computed in.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

namespace reference {

template <class T>
std::pair<T, T> bin_range(const std::vector<T>& bias, int64_t bins) {  // low end, width of a bin
  const T lo = *std::min_element(bias.begin(), bias.end()), hi = *std::max_element(bias.begin(), bias.end());
  return {lo - 1, (hi - lo + 2) / T(bins)};
}

// scores [tokens * experts], cutoff and document [tokens]; adds to counts [experts * bins].
template <class T>
void count(const std::vector<T>& scores, const std::vector<T>& cutoff, const std::vector<int>& document,
           const std::vector<T>& bias, int64_t bins, std::vector<int>& counts) {
  const size_t experts = bias.size();
  const auto [low, width] = bin_range(bias, bins);
  for (size_t t = 0; t < document.size(); ++t)
    for (size_t e = 0; e < experts; ++e) {
      if (document[t] < 0) continue;
      const T x = ((cutoff[t] - scores[t * experts + e]) - low) * (1 / width);
      const int64_t bin = std::clamp<int64_t>(int64_t(std::floor(x)), 0, bins - 1);
      ++counts[e * size_t(bins) + size_t(bin)];
    }
}

inline std::vector<double> centred(std::vector<double> b, const std::vector<double>& old, double ema) {
  double mean = 0;
  for (size_t e = 0; e < b.size(); ++e) mean += b[e] = (1 - ema) * b[e] + ema * old[e];
  for (double& x : b) x -= mean / double(b.size());
  return b;
}

inline std::vector<double> estimate(const std::vector<int>& counts, const std::vector<double>& bias, int64_t bins,
                                    int64_t active, double ema) {
  const auto [low, width] = bin_range(bias, bins);
  std::vector<double> now;
  for (size_t e = 0; e < bias.size(); ++e) {
    double tokens = 0, before = 0;
    for (int64_t b = 0; b < bins; ++b) tokens += counts[e * size_t(bins) + size_t(b)];
    if (tokens == 0) return bias;
    const double q = tokens * double(active) / double(bias.size());
    for (int64_t b = 0; b < bins; ++b) {
      const double h = counts[e * size_t(bins) + size_t(b)];
      if (before + h >= std::ceil(q)) {
        now.push_back(low + (double(b) + std::clamp((q - before) / h, 0.0, 1.0)) * width);
        break;
      }
      before += h;
    }
  }
  return centred(now, bias, ema);
}

// margins: score - cutoff of the counted tokens, [tokens][experts].
inline std::vector<double> exact(const std::vector<std::vector<double>>& margins, const std::vector<double>& bias,
                                 int64_t active, double ema) {
  if (margins.empty()) return bias;
  std::vector<double> now;
  for (size_t e = 0; e < bias.size(); ++e) {
    std::vector<double> column;
    for (const auto& m : margins) column.push_back(m[e]);
    std::sort(column.begin(), column.end(), std::greater<>());
    now.push_back(-column[column.size() * size_t(active) / bias.size()]);
  }
  return centred(now, bias, ema);
}

}  // namespace reference
