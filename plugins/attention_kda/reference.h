// reference.h: the recurrence token by token and its reverse, as the formulas read. Slow; the fast kernels are tested
// against it.
#pragma once
#include <cmath>
#include <vector>

#include "problem.h"

namespace kda::reference {

template <class T>
std::vector<T> first_state(const Problem<T>& p, const Span& s) {  // [K, V]
  std::vector<T> S(size_t(p.K * p.V), T(0));
  if (p.s0) std::copy_n(p.s0 + p.matrix(s), p.K * p.V, S.begin());
  return S;
}

// S = diag(exp g) S;  e = v - S^T k;  S = S + beta k e^T
template <class T>
void step(const Problem<T>& p, int64_t t, int64_t h, T* S, T* e) {
  const T *k = p.k + p.key(t, h), *g = p.g + p.key(t, h), *v = p.v + p.value(t, h);
  for (int64_t i = 0; i < p.K; ++i) {
    const T decay = std::exp(g[i]);
    for (int64_t j = 0; j < p.V; ++j) S[i * p.V + j] *= decay;
  }
  for (int64_t j = 0; j < p.V; ++j) {
    e[j] = v[j];
    for (int64_t i = 0; i < p.K; ++i) e[j] -= S[i * p.V + j] * k[i];
  }
  for (int64_t i = 0; i < p.K; ++i)
    for (int64_t j = 0; j < p.V; ++j) S[i * p.V + j] += p.beta[t * p.heads + h] * k[i] * e[j];
}

template <class T>
void forward(const Problem<T>& p, const Span& s) {
  std::vector<T> S = first_state(p, s), e(size_t(p.V));
  for (int64_t t = s.lo; t < s.hi; ++t) {
    step(p, t, s.head, S.data(), e.data());
    for (int64_t j = 0; p.o && j < p.V; ++j) {
      T sum = 0;
      for (int64_t i = 0; i < p.K; ++i) sum += S[size_t(i * p.V + j)] * p.q[p.key(t, s.head) + i];
      p.o[p.value(t, s.head) + j] = p.scale * sum;
    }
  }
  if (p.state) std::copy(S.begin(), S.end(), p.state + p.matrix(s));
}

template <class T>
void backward(const Problem<T>& p, const Span& s) {
  const int64_t K = p.K, V = p.V, n = s.hi - s.lo;
  std::vector<std::vector<T>> states{first_state(p, s)};  // states[r]: before token lo + r
  std::vector<std::vector<T>> errors;
  for (int64_t t = s.lo; t < s.hi; ++t) {
    std::vector<T> S = states.back(), e(size_t(V), T(0));
    step(p, t, s.head, S.data(), e.data());
    states.push_back(S), errors.push_back(e);
  }
  std::vector<T> dS(size_t(K * V), T(0)), de(size_t(V), T(0));
  if (p.d_state) std::copy_n(p.d_state + p.matrix(s), K * V, dS.begin());
  for (int64_t r = n - 1; r >= 0; --r) {
    const int64_t t = s.lo + r, key = p.key(t, s.head), value = p.value(t, s.head), b = t * p.heads + s.head;
    const std::vector<T>&after = states[size_t(r + 1)], &before = states[size_t(r)], &e = errors[size_t(r)];
    const T beta = p.beta[b];
    // o = scale S^T q
    for (int64_t i = 0; i < K; ++i) {
      T dq = 0;
      for (int64_t j = 0; j < V; ++j) {
        const T up = p.d_o ? p.d_o[value + j] : T(0);
        dq += after[size_t(i * V + j)] * up;
        dS[size_t(i * V + j)] += p.scale * p.q[key + i] * up;
      }
      if (p.dq) p.dq[key + i] = p.scale * dq;
    }
    // S = S' + beta k e^T, so de = beta dS^T k; and e = v - S'^T k
    T dbeta = 0;
    for (int64_t j = 0; j < V; ++j) {
      T write = 0;
      for (int64_t i = 0; i < K; ++i) write += dS[size_t(i * V + j)] * p.k[key + i];
      dbeta += write * e[size_t(j)];
      de[size_t(j)] = beta * write;
      if (p.dv) p.dv[value + j] = de[size_t(j)];
    }
    if (p.dbeta) p.dbeta[b] = dbeta;
    // S' = a S with a = exp(g)
    for (int64_t i = 0; i < K; ++i) {
      const T a = std::exp(p.g[key + i]);
      T dk = 0, dg = 0;
      for (int64_t j = 0; j < V; ++j) {
        T& d = dS[size_t(i * V + j)];
        const T decayed = a * before[size_t(i * V + j)];
        dk += beta * d * e[size_t(j)] - decayed * de[size_t(j)];
        d -= p.k[key + i] * de[size_t(j)];
        dg += d * decayed;
        d *= a;
      }
      if (p.dk) p.dk[key + i] = dk;
      if (p.dg) p.dg[key + i] = dg;
    }
  }
  if (p.ds0) std::copy(dS.begin(), dS.end(), p.ds0 + p.matrix(s));
}

}  // namespace kda::reference
