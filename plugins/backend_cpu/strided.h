// strided.h: walks an output whose operands broadcast. Axes of width 1 vanish and neighbours that run on merge, so that
// equal shapes become one axis and [T, H, K] against [K] two.
#pragma once
#include <array>

#include "element_kernel.h"

namespace kb::cpu {

template <int N>  // operands
struct Walk {
  int rank = 0;                                            // at least 1
  int64_t size[KB_MAX_RANK] = {};                          // innermost last
  std::array<std::array<int64_t, KB_MAX_RANK>, N> step{};  // of each operand, 0 where it repeats

  int64_t inner() const { return size[rank - 1]; }
  int64_t rows() const {
    int64_t n = 1;
    for (int i = 0; i + 1 < rank; ++i) n *= size[i];
    return n;
  }
  // Adds an axis inside the present ones.
  void push(int64_t n, const std::array<int64_t, N>& s) {
    if (n == 1) return;
    if (rank) {
      bool joins = true;
      for (int k = 0; k < N; ++k) joins = joins && step[k][rank - 1] == s[k] * n;
      if (joins) {
        size[rank - 1] *= n;
        for (int k = 0; k < N; ++k) step[k][rank - 1] = s[k];
        return;
      }
    }
    size[rank] = n;
    for (int k = 0; k < N; ++k) step[k][rank] = s[k];
    ++rank;
  }
  void finish() {
    if (!rank) size[0] = 1, rank = 1;
  }
  // f(row, count, offsets): runs of rows of the last axis but one, in [begin, end) of rows().
  template <class F>
  void runs(int64_t begin, int64_t end, F&& f) const {
    const int64_t last = rank > 1 ? size[rank - 2] : 1;
    for (int64_t r = begin; r < end;) {
      std::array<int64_t, N> at{};
      int64_t rest = r;
      for (int d = rank - 2; d >= 0; --d) {
        const int64_t i = rest % size[d];
        rest /= size[d];
        for (int k = 0; k < N; ++k) at[k] += i * step[k][d];
      }
      const int64_t count = std::min(end - r, last - r % last);
      f(r, count, at);
      r += count;
    }
  }
  int64_t row_step(int k) const { return rank > 1 ? step[k][rank - 2] : 0; }
};

// The walk over `out` (its first axis cut to `rows`) by dense operands that broadcast to it.
template <int N>
Walk<N> broadcast_walk(const kb_type& out, int64_t rows, const std::array<const kb_type*, N>& in) {
  std::array<std::array<int64_t, KB_MAX_RANK>, N> stride{};
  for (int k = 0; k < N; ++k) {
    const kb_type& t = *in[k];
    int64_t s = 1;
    for (int i = 1; i <= t.rank; ++i) {
      const int64_t n = t.shape[t.rank - i];
      if (i > out.rank || (n != 1 && n != out.shape[out.rank - i]))
        fail("operand ", k, " must broadcast to the result but has ", n, " on axis ", t.rank - i);
      stride[k][out.rank - i] = n == 1 ? 0 : s;
      s *= n;
    }
  }
  Walk<N> w;
  for (int d = 0; d < out.rank; ++d) {
    std::array<int64_t, N> s;
    for (int k = 0; k < N; ++k) s[k] = stride[k][d];
    w.push(d == 0 ? rows : out.shape[d], s);
  }
  w.finish();
  return w;
}

}  // namespace kb::cpu
