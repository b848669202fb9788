// reference.h: the products, attention and the loss as plain loops in the obvious order, for tests. T: float or double;
// sums are double, so that the reference is the more exact side.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace kb::cpu::reference {

// c [batch, m, n] (= or +=) op(a) op(b); b [k, n] for all of a unless b_batched.
template <class T>
void matmul(int64_t batch, int64_t m, int64_t n, int64_t k, bool ta, bool tb, bool b_batched, bool add, const T* a,
            const T* b, T* c) {
  for (int64_t z = 0; z < batch; ++z, a += m * k, b += b_batched ? k * n : 0, c += m * n)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double s = add ? double(c[i * n + j]) : 0;
        for (int64_t l = 0; l < k; ++l)
          s += double(a[ta ? l * m + i : i * k + l]) * double(b[tb ? j * k + l : l * n + j]);
        c[i * n + j] = T(s);
      }
}

// rows [rows, in], w [experts, out, in] or, tw false, [experts, in, out] -> y [rows, out]
template <class T>
void grouped_linear(int64_t rows, int64_t in, int64_t out, int64_t experts, const int32_t* offsets, bool tw, bool add,
                    const T* x, const T* w, T* y) {
  if (!add) std::fill(y, y + rows * out, T(0));
  for (int64_t e = 0; e < experts; ++e)
    for (int64_t r = offsets[e]; r < offsets[e + 1]; ++r)
      matmul<T>(1, 1, out, in, false, tw, false, add, x + r * in, w + e * in * out, y + r * out);
}

// a [rows, o], b [rows, i] -> y [experts, o, i]
template <class T>
void grouped_outer(int64_t o, int64_t i, int64_t experts, const int32_t* offsets, bool add, const T* a, const T* b,
                   T* y) {
  for (int64_t e = 0; e < experts; ++e)
    matmul<T>(1, o, i, offsets[e + 1] - offsets[e], true, false, false, add, a + offsets[e] * o, b + offsets[e] * i,
              y + e * o * i);
}

// One query against `seen` keys: p [seen] probabilities; returns lse. top: the largest logit.
template <class T>
double probabilities(const T* q, const T* k, int64_t k_row, int64_t d, int64_t seen, double scale,
                     std::vector<double>& p, double& top) {
  p.assign(size_t(seen), 0);
  top = -std::numeric_limits<double>::infinity();
  for (int64_t j = 0; j < seen; ++j) {
    for (int64_t x = 0; x < d; ++x) p[size_t(j)] += double(q[x]) * double(k[j * k_row + x]);
    p[size_t(j)] *= scale;
    top = std::max(top, p[size_t(j)]);
  }
  double sum = 0;
  for (double& x : p) x = std::exp(x - top), sum += x;
  for (double& x : p) x /= sum;
  return top + std::log(sum);
}

struct Heads {
  int64_t h, g, d, e;
};

template <class T>
void attention(const Heads& s, const int32_t* cu, int64_t documents, bool causal, double scale, const T* q, const T* k,
               const T* v, T* o, T* lse, T* peak) {
  std::fill(peak, peak + s.h, -std::numeric_limits<T>::infinity());
  std::vector<double> p;
  for (int64_t c = 0; c < documents; ++c)
    for (int64_t t = cu[c]; t < cu[c + 1]; ++t)
      for (int64_t h = 0; h < s.h; ++h) {
        const int64_t g = h / (s.h / s.g), seen = causal ? t - cu[c] + 1 : cu[c + 1] - cu[c];
        double top;
        lse[t * s.h + h] =
            T(probabilities(q + (t * s.h + h) * s.d, k + (cu[c] * s.g + g) * s.d, s.g * s.d, s.d, seen, scale, p, top));
        peak[h] = std::max(peak[h], T(top));
        for (int64_t x = 0; x < s.e; ++x) {
          double sum = 0;
          for (int64_t j = 0; j < seen; ++j) sum += p[size_t(j)] * double(v[((cu[c] + j) * s.g + g) * s.e + x]);
          o[(t * s.h + h) * s.e + x] = T(sum);
        }
      }
}

// dq, dk, dv double, cleared by the caller
template <class T>
void attention_backward(const Heads& s, const int32_t* cu, int64_t documents, bool causal, double scale, const T* q,
                        const T* k, const T* v, const T* up, double* dq, double* dk, double* dv) {
  std::vector<double> p, dp;
  for (int64_t c = 0; c < documents; ++c)
    for (int64_t t = cu[c]; t < cu[c + 1]; ++t)
      for (int64_t h = 0; h < s.h; ++h) {
        const int64_t g = h / (s.h / s.g), seen = causal ? t - cu[c] + 1 : cu[c + 1] - cu[c];
        const int64_t row = t * s.h + h;
        double top, dot = 0;
        probabilities(q + row * s.d, k + (cu[c] * s.g + g) * s.d, s.g * s.d, s.d, seen, scale, p, top);
        dp.assign(size_t(seen), 0);
        for (int64_t j = 0; j < seen; ++j) {
          const int64_t key = (cu[c] + j) * s.g + g;
          for (int64_t x = 0; x < s.e; ++x) dp[size_t(j)] += double(up[row * s.e + x]) * double(v[key * s.e + x]);
          dot += p[size_t(j)] * dp[size_t(j)];
        }
        for (int64_t j = 0; j < seen; ++j) {
          const int64_t key = (cu[c] + j) * s.g + g;
          const double ds = scale * p[size_t(j)] * (dp[size_t(j)] - dot);
          for (int64_t x = 0; x < s.d; ++x) {
            dq[row * s.d + x] += ds * double(k[key * s.d + x]);
            dk[key * s.d + x] += ds * double(q[row * s.d + x]);
          }
          for (int64_t x = 0; x < s.e; ++x) dv[key * s.e + x] += p[size_t(j)] * double(up[row * s.e + x]);
        }
      }
}

// loss, lse [rows], dlogits [rows, n] for up = 1
template <class T>
double cross_entropy(int64_t rows, int64_t n, const T* x, const int32_t* target, const T* weight, double* lse,
                     double* dx) {
  double loss = 0;
  for (int64_t r = 0; r < rows; ++r, x += n, dx += n) {
    lse[r] = 0;
    std::fill(dx, dx + n, 0.0);
    if (target[r] < 0 || weight[r] == T(0)) continue;
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t j = 0; j < n; ++j) top = std::max(top, double(x[j]));
    for (int64_t j = 0; j < n; ++j) sum += std::exp(double(x[j]) - top);
    lse[r] = top + std::log(sum);
    loss += double(weight[r]) * (lse[r] - double(x[target[r]]));
    for (int64_t j = 0; j < n; ++j) dx[j] = double(weight[r]) * (std::exp(double(x[j]) - lse[r]) - (j == target[r]));
  }
  return loss;
}

}  // namespace kb::cpu::reference
