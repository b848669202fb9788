// problem.h: a call of `kda` or `kda_backward` as plain pointers, and the walk over its (document, head) pairs. On the
// CPU the compute and the wide type are the same, T.
#pragma once
#include <algorithm>

#include "kda_op.h"

namespace kda {

struct Span {  // one head of one document: rows lo .. hi of the token axis
  int64_t document, head, lo, hi;
};

template <class T>
struct Problem {
  const T *q, *k, *g;   // [tokens, heads, K]
  const T* v;           // [tokens, heads, V]
  const T* beta;        // [tokens, heads]
  const int32_t* cu;    // [documents + 1]
  const T* s0;          // [documents or slots, heads, K, V] or null
  const int32_t* slot;  // [documents] or null
  int64_t tokens, heads, documents, K, V;
  T scale;
  // forward
  T* o = nullptr;      // null: not wanted
  T* state = nullptr;  // null: not wanted
  // backward; null: absent, or not wanted
  const T *d_o = nullptr, *d_state = nullptr;
  T *dq = nullptr, *dk = nullptr, *dv = nullptr, *dg = nullptr, *dbeta = nullptr, *ds0 = nullptr;

  int64_t key(int64_t t, int64_t h) const { return (t * heads + h) * K; }
  int64_t value(int64_t t, int64_t h) const { return (t * heads + h) * V; }
  int64_t matrix(const Span& s) const { return ((slot ? slot[s.document] : s.document) * heads + s.head) * K * V; }
};

template <class T>
Problem<T> operands(const kb::Call& c, double scale) {
  Problem<T> p{c.get<T>(kQ),        c.get<T>(kK),  c.get<T>(kG), c.get<T>(kV), c.get<T>(kBeta),
               c.get<int32_t>(kCu), c.get<T>(kS0), nullptr,      c.dim(kQ, 0), c.dim(kQ, 1),
               c.dim(kCu, 0) - 1,   c.dim(kQ, 2),  c.dim(kV, 2), T(scale)};
  return p;
}
template <class T>
Problem<T> forward_problem(const kb::Call& c, const KdaOp& op) {
  Problem<T> p = operands<T>(c, op.scale);
  p.slot = c.get<int32_t>(kSlot);
  p.o = c.put<T>(0), p.state = c.put<T>(1);
  // The host gives s0's own buffer as the state of a serving call; whoever gives another gets the rows of other slots
  // copied.
  if (p.slot && p.state && p.state != p.s0) std::copy_n(p.s0, kb::elements(c.in(kS0)), p.state);
  return p;
}
template <class T>
Problem<T> backward_problem(const kb::Call& c, const KdaBackwardOp& op) {
  Problem<T> p = operands<T>(c, op.scale);
  p.d_o = c.get<T>(kDo), p.d_state = c.get<T>(kDstate);
  p.dq = c.put<T>(0), p.dk = c.put<T>(1), p.dv = c.put<T>(2), p.dg = c.put<T>(3), p.dbeta = c.put<T>(4),
  p.ds0 = c.put<T>(5);
  return p;
}

// How many heads of a document a kernel walks side by side. The rows of one head are islands of K elements, heads K
// apart; together they are a stream that the memory system follows, and a token costs the same in a long sequence as in
// a short one. Few enough that their states stay in a core's cache, and that every thread has work.
inline int64_t heads_together(const kb::Call& c) {
  const int64_t heads = c.dim(kQ, 1), pairs = (c.dim(kCu, 0) - 1) * heads;
  const int64_t bytes = c.dim(kQ, 2) * c.dim(kV, 2) * (c.in(kQ).dtype == KB_F64 ? 8 : 4);
  const int64_t cached = std::max<int64_t>(1, (int64_t(256) << 10) / std::max<int64_t>(1, bytes));
  return std::max<int64_t>(1, std::min({heads, cached, pairs / c.threads()}));
}
// f(span of the first head, heads, thread) for groups of at most `together` heads of every document; empty documents as
// below.
template <class T, class F>
void each_group(const kb::Call& c, const Problem<T>& p, int64_t together, F&& f) {
  const int64_t groups = (p.heads + together - 1) / together;
  c.parallel(p.documents * groups, 1, [&](int64_t begin, int64_t end, int32_t thread) {
    for (int64_t n = begin; n < end; ++n) {
      const int64_t d = n / groups, head = n % groups * together;
      const Span s{d, head, p.cu[d], p.cu[d + 1]};
      if (!p.slot || s.lo < s.hi) f(s, std::min(together, p.heads - head), thread);
    }
  });
}
// f(span, thread) for every head of every document. An empty document is visited too, for its state, but not when it
// would be that of a slot: there nothing changes, and its slot number may be anything.
template <class T, class F>
void each_head(const kb::Call& c, const Problem<T>& p, F&& f) {
  each_group(c, p, 1, [&](const Span& s, int64_t, int32_t thread) { f(s, thread); });
}

// Rows past the last border, of a [tokens, width] output.
template <class T>
void clear_unused(const Problem<T>& p, T* x, int64_t width) {
  if (x) std::fill(x + p.cu[p.documents] * width, x + p.tokens * width, T(0));
}

}  // namespace kda
