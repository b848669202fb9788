// CPU kernels: plain loops, ordered so that the bins of a few experts stay in the first cache.
#include "quantile_cpu.h"

namespace {

// Bins over [min(bias) - 1, max(bias) + 1]; scores are in (0, 1), so a needed bias is inside.
template <class T>
struct Bins {
  T low, width;
  Bins(const T* bias, int64_t experts, int64_t bins) {
    const auto [lo, hi] = std::minmax_element(bias, bias + experts);
    low = *lo - 1, width = (*hi - *lo + 2) / T(bins);
  }
};

// cutoff - score first: it is exactly 0 for the expert at the cutoff, which no rounding may move over the edge of a bin.
template <class T, int64_t N>
inline void bins_of(const T* scores, T cutoff, T low, T scale, T last, int32_t* bin) {
  for (int64_t k = 0; k < N; ++k) {
    T x = ((cutoff - scores[k]) - low) * scale;
    x = x > 0 ? x : T(0);
    bin[k] = int32_t(x < last ? x : last);
  }
}

// Output o is input i changed in place: one buffer, or a copy where the host could not give it.
template <class T>
T* in_place(const kb::Call& c, uint32_t o, uint32_t i) {
  T* out = c.put<T>(o);
  if (out && out != c.get<T>(i)) std::copy_n(c.get<T>(i), kb::elements(c.in(i)), out);
  return out;
}

// bias' = centred((1 - ema) * now + ema * bias).
template <class T>
void finish(const double* now, const T* bias, double ema, int64_t experts, T* out) {
  double mean = 0;
  for (int64_t e = 0; e < experts; ++e) mean += (1 - ema) * now[e] + ema * double(bias[e]);
  mean /= double(experts);
  for (int64_t e = 0; e < experts; ++e) out[e] = T((1 - ema) * now[e] + ema * double(bias[e]) - mean);
}

}  // namespace

void QuantileCountCpu::launch(const kb::Call& c, const QuantileCount&) {
  kb::floats(c.in(1).dtype, [&]<class T>() {
    constexpr int64_t kTile = 16;  // experts whose bins stay in the first cache, and one cache line of scores
    const int64_t tokens = c.rows(c.in(1)), experts = c.dim(0, 0), bins = c.dim(0, 1);
    const T *scores = c.get<T>(1), *cutoff = c.get<T>(2);
    const int32_t* document = c.get<int32_t>(3);
    const Bins<T> range(c.get<T>(4), experts, bins);
    const T scale = 1 / range.width, last = T(bins - 1);
    int32_t* counts = in_place<int32_t>(c, 0, 0);
    if (!counts) return;
    c.parallel((experts + kTile - 1) / kTile, 1, [&](int64_t first, int64_t end, int32_t) {
      for (int64_t tile = first; tile < end; ++tile) {
        const int64_t e0 = tile * kTile, n = std::min(kTile, experts - e0);
        int32_t* mine = counts + e0 * bins;
        for (int64_t t = 0; t < tokens; ++t) {
          if (document[t] < 0) continue;
          const T* s = scores + t * experts + e0;
          int32_t bin[kTile];
          if (n == kTile)  // a fixed count, which compilers vectorise
            bins_of<T, kTile>(s, cutoff[t], range.low, scale, last, bin);
          else
            for (int64_t k = 0; k < n; ++k) bins_of<T, 1>(s + k, cutoff[t], range.low, scale, last, bin + k);
          for (int64_t k = 0; k < n; ++k) ++mine[k * bins + bin[k]];
        }
      }
    });
  });
}

void QuantileEstimateCpu::launch(const kb::Call& c, const QuantileEstimate& op) {
  kb::floats(c.in(1).dtype, [&]<class T>() {
    const int64_t experts = c.dim(0, 0), bins = c.dim(0, 1);
    const int32_t* counts = c.get<int32_t>(0);
    const T* bias = c.get<T>(1);
    const Bins<T> range(bias, experts, bins);
    double* now = c.workspace<double>();
    int64_t tokens = 0;  // the same for every expert
    for (int64_t b = 0; b < bins; ++b) tokens += counts[b];
    if (!tokens) return void(std::copy_n(bias, experts, c.put<T>(0)));
    const double q = double(tokens) * double(op.active) / double(experts), whole = std::ceil(q);
    c.parallel(experts, 16, [&](int64_t begin, int64_t end, int32_t) {
      for (int64_t e = begin; e < end; ++e) {
        const int32_t* h = counts + e * bins;
        int64_t before = 0, b = 0;
        while (b < bins - 1 && double(before + h[b]) < whole) before += h[b++];
        const double inside = std::clamp((q - double(before)) / double(std::max(1, h[b])), 0.0, 1.0);
        now[e] = double(range.low) + (double(b) + inside) * double(range.width);
      }
    });
    finish(now, bias, op.ema, experts, c.put<T>(0));
  });
}

void QuantileAppendCpu::launch(const kb::Call& c, const QuantileAppend&) {
  kb::floats(c.in(2).dtype, [&]<class T>() {
    const int64_t capacity = c.dim(0, 0), experts = c.dim(0, 1), tokens = c.rows(c.in(2));
    const T *scores = c.get<T>(2), *cutoff = c.get<T>(3);
    const int32_t* document = c.get<int32_t>(4);
    T* margins = in_place<T>(c, 0, 0);
    int32_t* filled = in_place<int32_t>(c, 1, 1);
    if (!margins || !filled) kb::fail("margins and filled are one list: both outputs must be wanted");
    int32_t* row = c.workspace<int32_t>();  // where token t goes
    int64_t next = *filled;
    for (int64_t t = 0; t < tokens; ++t) row[t] = document[t] < 0 ? -1 : int32_t(next++);
    if (next > capacity)
      kb::fail("the step has ", next, " tokens but `capacity` of router.quantile holds ", capacity,
               "; raise it to the tokens of a step, or set estimator = \"histogram\"");
    c.parallel(tokens, 64, [&](int64_t begin, int64_t end, int32_t) {
      for (int64_t t = begin; t < end; ++t) {
        if (row[t] < 0) continue;
        T* to = margins + row[t] * experts;
        for (int64_t e = 0; e < experts; ++e) to[e] = scores[t * experts + e] - cutoff[t];
      }
    });
    *filled = int32_t(next);
  });
}

void QuantileExactCpu::launch(const kb::Call& c, const QuantileExact& op) {
  kb::floats(c.in(0).dtype, [&]<class T>() {
    const int64_t capacity = c.dim(0, 0), experts = c.dim(0, 1), tokens = *c.get<int32_t>(1);
    const T *margins = c.get<T>(0), *bias = c.get<T>(3);
    if (*c.get<int32_t>(2) != tokens)
      kb::fail("the exact estimator sees the ", tokens, " tokens of one rank only, but the step has ",
               *c.get<int32_t>(2), "; set estimator = \"histogram\"");
    if (!tokens) return void(std::copy_n(bias, experts, c.put<T>(0)));
    const int64_t q = tokens * op.active / experts;
    double* now = c.workspace<double>();
    T* columns = reinterpret_cast<T*>(now + experts);
    c.parallel(experts, 1, [&](int64_t begin, int64_t end, int32_t thread) {
      T* column = columns + thread * capacity;
      for (int64_t e = begin; e < end; ++e) {
        for (int64_t t = 0; t < tokens; ++t) column[t] = margins[t * experts + e];
        std::nth_element(column, column + q, column + tokens, std::greater<T>());
        now[e] = -double(column[q]);
      }
    });
    finish(now, bias, op.ema, experts, c.put<T>(0));
  });
}

void ExpertLoadCpu::launch(const kb::Call& c, const ExpertLoad&) {
  const int64_t tokens = c.rows(c.in(1)), active = c.dim(1, 1), experts = c.dim(0, 0);
  const int32_t *ids = c.get<int32_t>(1), *document = c.get<int32_t>(2);
  int32_t* load = in_place<int32_t>(c, 0, 0);
  if (!load) return;
  for (int64_t t = 0; t < tokens; ++t) {
    if (document[t] < 0) continue;
    for (int64_t k = 0; k < active; ++k) {
      const int32_t e = ids[t * active + k];
      if (e < 0 || e >= experts) kb::fail("ids must be in [0, ", experts - 1, "] but token ", t, " has ", e);
      ++load[e];
    }
  }
}
