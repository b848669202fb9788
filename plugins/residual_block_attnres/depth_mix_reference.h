// depth_mix_reference.h: the formulas as they are written, in plain loops and double.
#pragma once
#include <cmath>
#include <vector>

namespace reference {

using Rows = std::vector<std::vector<double>>;  // one vector a source, [tokens * d]

struct Mixed {
  std::vector<double> h, p;  // [tokens * d], [tokens * n]
};
inline Mixed depth_mix(const Rows& v, const std::vector<double>& norm, const std::vector<double>& query, int64_t tokens,
                       double eps) {
  const size_t n = v.size(), d = norm.size();
  Mixed out{std::vector<double>(size_t(tokens) * d), std::vector<double>(size_t(tokens) * n)};
  for (size_t t = 0; t < size_t(tokens); ++t) {
    double* p = &out.p[t * n];
    double top = -INFINITY, sum = 0;
    for (size_t i = 0; i < n; ++i) {
      double dot = 0, square = 0;
      for (size_t x = 0; x < d; ++x)
        dot += norm[x] * query[x] * v[i][t * d + x], square += v[i][t * d + x] * v[i][t * d + x];
      p[i] = dot / std::sqrt(square / double(d) + eps);
      top = std::max(top, p[i]);
    }
    for (size_t i = 0; i < n; ++i) sum += p[i] = std::exp(p[i] - top);
    for (size_t i = 0; i < n; ++i) p[i] /= sum;
    for (size_t i = 0; i < n; ++i)
      for (size_t x = 0; x < d; ++x) out.h[t * d + x] += p[i] * v[i][t * d + x];
  }
  return out;
}

struct MixGradient {
  Rows v;
  std::vector<double> norm, query;
};
// dp_i = v_i . dh;  dl_i = p_i (dp_i - sum_j p_j dp_j);  c = norm * query;  r_i the inverse root
// dv_i = p_i dh + dl_i r_i (c - r_i^2 (c . v_i) / d v_i);  dc = sum dl_i r_i v_i;  dquery = dc * norm;  dnorm = dc *
// query
inline MixGradient depth_mix_backward(const Rows& v, const std::vector<double>& norm, const std::vector<double>& query,
                                      const std::vector<double>& dh, int64_t tokens, double eps) {
  const size_t n = v.size(), d = norm.size();
  const Mixed f = depth_mix(v, norm, query, tokens, eps);
  MixGradient g{Rows(n, std::vector<double>(size_t(tokens) * d)), std::vector<double>(d), std::vector<double>(d)};
  for (size_t t = 0; t < size_t(tokens); ++t) {
    std::vector<double> dp(n);
    double mean = 0;
    for (size_t i = 0; i < n; ++i) {
      for (size_t x = 0; x < d; ++x) dp[i] += v[i][t * d + x] * dh[t * d + x];
      mean += f.p[t * n + i] * dp[i];
    }
    for (size_t i = 0; i < n; ++i) {
      double dot = 0, square = 0;
      for (size_t x = 0; x < d; ++x)
        dot += norm[x] * query[x] * v[i][t * d + x], square += v[i][t * d + x] * v[i][t * d + x];
      const double p = f.p[t * n + i], dl = p * (dp[i] - mean), r = 1 / std::sqrt(square / double(d) + eps);
      for (size_t x = 0; x < d; ++x) {
        const double c = norm[x] * query[x], y = v[i][t * d + x];
        g.v[i][t * d + x] = p * dh[t * d + x] + dl * r * (c - r * r * dot / double(d) * y);
        g.query[x] += dl * r * y * norm[x];
        g.norm[x] += dl * r * y * query[x];
      }
    }
  }
  return g;
}

}  // namespace reference
