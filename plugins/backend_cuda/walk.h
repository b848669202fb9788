// walk.h: walks an output whose operands have steps of their own (broadcast, permuted). Axes of width 1 vanish and
// neighbours that run on merge, so that equal shapes become one axis and [T, H, K] against [K] two. Built on the host,
// passed to a kernel by value.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace kb::cuda::element {

// n / d for n < 2^31 by one multiplication: mul = ceil(2^(32 + shift) / d) - 2^32 would need 33 bits, so n stays
// below 2^31.
struct Divisor {
  uint32_t d = 1, mul = 0, shift = 0;
  Divisor() = default;
  explicit Divisor(uint32_t by) : d(by) {
    if (by < 2) return;
    uint32_t bits = 0;  // ceil(log2(by))
    while (bits < 32 && (uint64_t(1) << bits) < by) ++bits;
    const uint32_t p = 31 + bits;
    mul = uint32_t(((uint64_t(1) << p) + by - 1) / by);
    shift = p - 32;
  }
#ifdef __CUDACC__
  __device__ uint32_t operator()(uint32_t n) const { return d < 2 ? n : __umulhi(n, mul) >> shift; }
#endif
};

template <int N>  // operands
struct Walk {
  static constexpr int kMost = 8;
  int outer = 0;                 // axes outside of the innermost one
  bool large = false;            // an index needs 64 bits
  int64_t inner = 1, total = 1;  // width of the innermost axis; all elements
  int64_t inner_step[N] = {};
  int64_t size[kMost] = {}, step[N][kMost] = {};  // from the inside out
  Divisor by_inner, by[kMost];

#ifdef __CUDACC__
  // The place in the innermost axis of element `i` of the output; the operands' offsets go to `at`.
  __device__ int64_t place(int64_t i, int64_t (&at)[N]) const {
    int64_t k;
#pragma unroll
    for (int n = 0; n < N; ++n) at[n] = 0;
    if (!large) {
      uint32_t rest = by_inner(uint32_t(i));
      k = uint32_t(i) - rest * uint32_t(inner);
      for (int d = 0; d < outer; ++d) {
        const uint32_t next = by[d](rest), j = rest - next * uint32_t(size[d]);
        rest = next;
#pragma unroll
        for (int n = 0; n < N; ++n) at[n] += j * step[n][d];
      }
    } else {
      int64_t rest = i / inner;
      k = i - rest * inner;
      for (int d = 0; d < outer; ++d) {
        const int64_t next = rest / size[d], j = rest - next * size[d];
        rest = next;
#pragma unroll
        for (int n = 0; n < N; ++n) at[n] += j * step[n][d];
      }
    }
#pragma unroll
    for (int n = 0; n < N; ++n) at[n] += k * inner_step[n];
    return k;
  }
#endif
};

// Collects axes from the outermost in; make(v) ends it, counting in units of `v` elements of the innermost axis.
template <int N>
class WalkMaker {
 public:
  void push(int64_t n, const int64_t (&s)[N]) {
    if (n == 1) return;
    if (rank_) {
      bool joins = true;
      for (int k = 0; k < N; ++k) joins = joins && step_[k][rank_ - 1] == s[k] * n;
      if (joins) {
        size_[rank_ - 1] *= n;
        for (int k = 0; k < N; ++k) step_[k][rank_ - 1] = s[k];
        return;
      }
    }
    size_[rank_] = n;
    for (int k = 0; k < N; ++k) step_[k][rank_] = s[k];
    ++rank_;
  }
  int rank() const { return rank_; }
  int64_t inner() const { return rank_ ? size_[rank_ - 1] : 1; }
  int64_t inner_step(int k) const { return rank_ ? step_[k][rank_ - 1] : 0; }
  int64_t size(int d) const { return size_[d]; }
  int64_t step(int k, int d) const { return step_[k][d]; }
  // Does every outer step of operand k keep an alignment of v elements?
  bool aligned(int k, int64_t v) const {
    for (int d = 0; d + 1 < rank_; ++d)
      if (step_[k][d] % v) return false;
    return true;
  }
  // Steps stay in elements; indices count units of v.
  Walk<N> make(int64_t v) const {
    Walk<N> w;
    w.inner = inner() / v;
    for (int k = 0; k < N; ++k) w.inner_step[k] = inner_step(k) * v;
    w.total = w.inner;
    for (int d = rank_ - 2; d >= 0; --d, ++w.outer) {
      w.size[w.outer] = size_[d], w.total *= size_[d];
      for (int k = 0; k < N; ++k) w.step[k][w.outer] = step_[k][d];
    }
    w.large = w.total >= int64_t(1) << 31;
    if (w.large || w.total == 0) return w;
    w.by_inner = Divisor(uint32_t(w.inner));
    for (int d = 0; d < w.outer; ++d) w.by[d] = Divisor(uint32_t(w.size[d]));
    return w;
  }

 private:
  int rank_ = 0;
  int64_t size_[Walk<N>::kMost] = {}, step_[N][Walk<N>::kMost] = {};
};

}  // namespace kb::cuda::element
