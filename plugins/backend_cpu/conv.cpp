#include "conv.h"

#include "lanes.h"

namespace kb::cpu {
namespace {

constexpr int64_t kMostTaps = 64, kMostPieces = 16, kTile = 512;

struct Documents {
  const int32_t* cu;
  int64_t count;
  int64_t tokens() const { return count > 0 ? cu[count] : 0; }
  int64_t of(int64_t t) const { return std::upper_bound(cu, cu + count + 1, int32_t(t)) - cu - 1; }
};
Documents documents(const Call& c) {
  const kb_type& t = c.in(2);
  Documents d{c.get<int32_t>(2), std::max<int64_t>(0, std::min(c.rows(t), t.shape[0]) - 1)};
  for (int64_t i = 0; i < d.count; ++i)
    if (d.cu[i] > d.cu[i + 1]) fail("cu must not fall but is ", d.cu[i], " then ", d.cu[i + 1], " at document ", i);
  if (d.count > 0 && (d.cu[0] != 0 || d.tokens() > c.dim(0, 0)))
    fail("cu must run from 0 to at most ", c.dim(0, 0), " but runs from ", d.cu[0], " to ", d.tokens());
  return d;
}

struct Sizes {
  int64_t channels, taps;
};
Sizes sizes(const Call& c) {
  const Sizes s{c.dim(0, 1), c.dim(1, 1)};
  if (c.dim(1, 0) != s.channels) fail("w must have ", s.channels, " channels but got ", c.dim(1, 0));
  if (s.taps < 1 || s.taps > kMostTaps) fail("taps must be in [1, ", kMostTaps, "] but got ", s.taps);
  return s;
}

// w [channels, taps] -> [taps, channels], last tap first when reversed.
template <class T>
void turn(const T* w, T* to, const Sizes& s, bool reversed) {
  for (int64_t i = 0; i < s.channels; ++i)
    for (int64_t j = 0; j < s.taps; ++j) to[(reversed ? s.taps - 1 - j : j) * s.channels + i] = w[i * s.taps + j];
}

template <class T>
void clear_unused(const Call& c, uint32_t o, const Documents& d, int64_t channels) {
  const int64_t n = std::max<int64_t>(0, c.rows(c.out(o)) - d.tokens());
  std::memset(c.put<T>(o) + d.tokens() * channels, 0, size_t(n * channels) * sizeof(T));
}

}  // namespace

// The turned weights and a row of zeros.
uint64_t ShortConvKernel::workspace(const Call& c, const Op&) {
  return uint64_t((c.dim(1, 1) + 1) * c.dim(0, 1) * width_of(c.in(0).dtype));
}

void ShortConvKernel::launch(const Call& c, const Op&) {
  const Sizes s = sizes(c);
  const Documents docs = documents(c);
  const int64_t n = s.channels, past = s.taps - 1;
  const int32_t* slot = c.get<int32_t>(4);
  const auto slot_of = [&](int64_t d) {
    const int64_t at = slot ? slot[d] : d;
    if (at < 0 || at >= c.dim(3, 0)) fail("slot of document ", d, " must be in [0, ", c.dim(3, 0), ") but got ", at);
    return at;
  };
  floats(c.in(0).dtype, [&]<class T>() {
    const T *x = c.get<T>(0), *state = c.get<T>(3);
    if (state)
      for (int64_t d = 0; d < docs.count; ++d) (void)slot_of(d);
    T *w = c.workspace<T>(), *zeros = w + s.taps * n;
    if (c.wanted(0)) {
      turn(c.get<T>(1), w, s, false);
      std::fill(zeros, zeros + n, T(0));
      c.parallel(docs.tokens(), std::max<int64_t>(1, kGrain / n), [&](int64_t b, int64_t e, int32_t) {
        const T* from[kMostTaps];
        int64_t d = docs.of(b);
        for (int64_t t = b; t < e; ++t) {
          while (t >= docs.cu[d + 1]) ++d;
          for (int64_t j = 0; j < s.taps; ++j) {
            const int64_t at = t - past + j - docs.cu[d];  // position in the document
            from[j] = at >= 0 ? x + (t - past + j) * n : state ? state + (slot_of(d) * past + past + at) * n : zeros;
          }
          conv_lanes(from, w, c.put<T>(0) + t * n, s.taps, n);
        }
      });
      clear_unused<T>(c, 0, docs, n);
    }
    if (!state || c.n_out() < 2 || !c.wanted(1)) return;
    T* now = c.put<T>(1);
    if (now != state) std::memcpy(now, state, size_t(elements(c.in(3))) * sizeof(T));
    for (int64_t d = 0; d < docs.count; ++d) {
      const int64_t begin = docs.cu[d], len = docs.cu[d + 1] - begin;
      if (len == 0) continue;
      T* row = now + slot_of(d) * past * n;
      for (int64_t j = 0; j < past; ++j) {  // ascending: an old row is read before it is overwritten
        const int64_t at = len - past + j;
        std::memcpy(row + j * n, at >= 0 ? x + (begin + at) * n : row + (past + at) * n, size_t(n) * sizeof(T));
      }
    }
  });
}

namespace {
int64_t pieces(int64_t tokens, int64_t n) {
  return std::min(pieces_of(tokens * n, 32768, kMostPieces), std::max<int64_t>(1, tokens));
}
}  // namespace

// The turned weights, a row of zeros, and for each piece of tokens the taps' sums in double and in the type.
uint64_t ShortConvBackwardKernel::workspace(const Call& c, const Op&) {
  const int64_t n = c.dim(0, 1), taps = c.dim(1, 1);
  return uint64_t((taps + 1) * n + 2 * pieces(c.dim(0, 0), n) * taps * n) * sizeof(double) + 64;
}

void ShortConvBackwardKernel::launch(const Call& c, const Op&) {
  const Sizes s = sizes(c);
  const Documents docs = documents(c);
  const int64_t n = s.channels, past = s.taps - 1, tokens = docs.tokens();
  floats(c.in(0).dtype, [&]<class T>() {
    const T *x = c.get<T>(0), *dy = c.get<T>(3);
    const int64_t count = pieces(tokens, n), each = ceil_div(tokens, count), block = s.taps * n;
    double* total = c.workspace<double>();                  // [pieces, taps, channels]
    T* part = reinterpret_cast<T*>(total + count * block);  // [pieces, taps, channels]
    T *w = part + count * block, *zeros = w + block;
    std::fill(zeros, zeros + n, T(0));
    if (c.wanted(0)) {  // dx[t] = sum over j of w[j] dy[t + taps - 1 - j]: the convolution, looking ahead
      turn(c.get<T>(1), w, s, true);
      c.parallel(tokens, std::max<int64_t>(1, kGrain / n), [&](int64_t b, int64_t e, int32_t) {
        const T* from[kMostTaps];
        int64_t d = docs.of(b);
        for (int64_t t = b; t < e; ++t) {
          while (t >= docs.cu[d + 1]) ++d;
          for (int64_t j = 0; j < s.taps; ++j) from[j] = t + j < docs.cu[d + 1] ? dy + (t + j) * n : zeros;
          conv_lanes(from, w, c.put<T>(0) + t * n, s.taps, n);
        }
      });
      clear_unused<T>(c, 0, docs, n);
    }
    if (!c.wanted(1)) return;
    c.parallel(count, 1, [&](int64_t b, int64_t e, int32_t) {
      const T* from[kMostTaps];
      for (int64_t p = b; p < e; ++p) {
        double* sum = total + p * block;
        T* acc = part + p * block;
        std::fill(sum, sum + block, 0.0);
        const int64_t begin = std::min(tokens, p * each), end = std::min(tokens, begin + each);
        for (int64_t r = begin; r < end; r += 64) {
          std::fill(acc, acc + block, T(0));
          for (int64_t tile = 0; tile < n; tile += kTile) {  // the sums of a tile stay in the first cache
            int64_t d = docs.of(r);
            for (int64_t t = r; t < std::min(end, r + 64); ++t) {
              while (t >= docs.cu[d + 1]) ++d;
              for (int64_t j = 0; j < s.taps; ++j)
                from[j] = t - past + j >= docs.cu[d] ? x + (t - past + j) * n + tile : zeros;
              conv_weight_lanes(from, dy + t * n + tile, acc + tile, n, s.taps, std::min(kTile, n - tile));
            }
          }
          for (int64_t i = 0; i < block; ++i) sum[i] += double(acc[i]);
        }
      }
    });
    T* dw = c.put<T>(1);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < s.taps; ++j) {
        double v = c.adds(1) ? double(dw[i * s.taps + j]) : 0;
        for (int64_t p = 0; p < count; ++p) v += total[p * block + j * n + i];
        dw[i * s.taps + j] = T(v);
      }
  });
}

}  // namespace kb::cpu
