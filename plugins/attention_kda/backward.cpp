// backward.cpp: kernels `chunk` and `chunk-rescaled` of `kda_backward`. Nothing is saved by the forward: a first sweep
// keeps the state every four chunks, then each group of four is run again, keeping all, and reversed; heads take turns
// after each group.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backward.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "backward-inl.h"
#include "flush.h"
#include "kernels.h"

HWY_BEFORE_NAMESPACE();
namespace kda {
namespace HWY_NAMESPACE {

constexpr int64_t kGroup = 4;  // chunks between two kept states

template <class T>
struct Sweep {
  T* states;               // [kGroup, Kp, Vp]  entering each chunk of the group
  ChunkData<T> x[kGroup];  // of the group
  BackwardData<T> y;
};

// Forward over rows from .. from + kGroup chunks (not past the end), changing S.
template <bool Dense, class T>
void skim_group(const Problem<T>& p, const Span& s, int64_t from, T* S, const ChunkData<T>& x) {
  for (int64_t t = from; t < from + kGroup * kChunk; t += kChunk) {
    prepare<Dense, false>(p, s.head, t, kChunk, x, t + kChunk, HWY_MIN(t + 2 * kChunk, s.hi));
    pairs<Dense, false>(p, x);
    errors(p, s.head, t, kChunk, S, x);
    advance(p, S, x);
  }
}

// Forward again from the kept state, then the reverse; dS becomes the gradient of the kept state.
template <bool Dense, class T>
void reverse_group(const Problem<T>& p, const Span& s, int64_t from, const T* kept, T* dS, const Sweep<T>& w) {
  const int64_t matrix = padded(p.K) * padded(p.V), chunks = HWY_MIN(kGroup, (s.hi - from + kChunk - 1) / kChunk);
  std::copy_n(kept, matrix, w.states);
  for (int64_t c = 0; c < chunks; ++c) {
    const int64_t t = from + c * kChunk, n = HWY_MIN(kChunk, s.hi - t);
    prepare<Dense, true>(p, s.head, t, n, w.x[c]);
    pairs<Dense, true>(p, w.x[c]);
    errors(p, s.head, t, n, w.states + c * matrix, w.x[c]);
    if (c + 1 == chunks) break;
    std::copy_n(w.states + c * matrix, matrix, w.states + (c + 1) * matrix);
    advance(p, w.states + (c + 1) * matrix, w.x[c]);
  }
  for (int64_t c = chunks - 1; c >= 0; --c) {
    const int64_t t = from + c * kChunk, n = HWY_MIN(kChunk, s.hi - t);
    if (const int64_t earlier = t - kGroup * kChunk; earlier >= s.lo) ask_rows(p, s.head, earlier, earlier + kChunk);
    chunk_back<Dense>(p, s.head, t, n, w.states + c * matrix, dS, w.x[c], w.y);
  }
}

template <bool Dense, class T>
void backward_heads(const Problem<T>& p, const Span& first, int64_t heads, T* work) {
  constexpr int64_t step = kGroup * kChunk;
  const int64_t Kp = padded(p.K), Vp = padded(p.V), matrix = Kp * Vp;
  Sweep<T> w;
  T* dS = work;  // [heads, Kp, Vp]; in the first sweep the states
  w.states = dS + heads * matrix;
  T* rest = w.states + kGroup * matrix;
  for (auto& x : w.x) rest = x.place(rest, p.K, p.V);
  T* kept = w.y.place(rest, p.K, p.V);  // [groups, heads, Kp, Vp]
  auto span = [&](int64_t h) { return Span{first.document, first.head + h, first.lo, first.hi}; };

  for (int64_t h = 0; h < heads; ++h) load_state(p, span(h), dS + h * matrix);
  const int64_t groups = (first.hi - first.lo + step - 1) / step;
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t h = 0; h < heads; ++h) {
      std::copy_n(dS + h * matrix, matrix, kept + (g * heads + h) * matrix);
      if (g + 1 < groups) skim_group<Dense>(p, span(h), first.lo + g * step, dS + h * matrix, w.x[0]);
    }
  for (int64_t h = 0; h < heads; ++h) {
    if (p.d_state)
      copy_in(p.d_state + p.matrix(span(h)), p.V, p.K, p.V, dS + h * matrix, Kp, Vp);
    else
      std::fill_n(dS + h * matrix, matrix, T(0));
  }
  for (int64_t g = groups - 1; g >= 0; --g)
    for (int64_t h = 0; h < heads; ++h)
      reverse_group<Dense>(p, span(h), first.lo + g * step, kept + (g * heads + h) * matrix, dS + h * matrix, w);
  for (int64_t h = 0; p.ds0 && h < heads; ++h) copy_out(dS + h * matrix, Vp, p.ds0 + p.matrix(span(h)), p.V, p.K, p.V);
}

void backward32(const Problem<float>& p, const Span& s, int64_t heads, bool dense, float* work) {
  dense ? backward_heads<true>(p, s, heads, work) : backward_heads<false>(p, s, heads, work);
}
void backward64(const Problem<double>& p, const Span& s, int64_t heads, bool dense, double* work) {
  dense ? backward_heads<true>(p, s, heads, work) : backward_heads<false>(p, s, heads, work);
}
int64_t backward_work(int64_t tokens, int64_t heads, int64_t K, int64_t V) {  // elements a thread
  const int64_t groups = (tokens + kGroup * kChunk - 1) / (kGroup * kChunk);
  return (heads + kGroup + groups * heads) * padded(K) * padded(V) + kGroup * ChunkData<float>::size(K, V) +
         BackwardData<float>::size(K, V);
}

}  // namespace HWY_NAMESPACE
}  // namespace kda
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kda {
namespace {
HWY_EXPORT(backward32);
HWY_EXPORT(backward64);
HWY_EXPORT(backward_work);

int64_t work(const kb::Call& c) {
  return HWY_DYNAMIC_DISPATCH(backward_work)(c.dim(kQ, 0), heads_together(c), c.dim(kQ, 2), c.dim(kV, 2));
}

int64_t work_bytes(const kb::Call& c) { return c.threads() * work(c) * (c.in(kQ).dtype == KB_F64 ? 8 : 4); }

void run(const kb::Call& c, const KdaBackwardOp& op, bool dense) {
  kb::floats(c.in(kQ).dtype, [&]<class T>() {
    const Problem<T> p = backward_problem<T>(c, op);
    const int64_t size = work(c);
    each_group(c, p, heads_together(c), [&](const Span& s, int64_t heads, int32_t thread) {
      const FlushDenormals flush;
      T* w = c.workspace<T>() + thread * size;
      if constexpr (sizeof(T) == 4)
        HWY_DYNAMIC_DISPATCH(backward32)(p, s, heads, dense, w);
      else
        HWY_DYNAMIC_DISPATCH(backward64)(p, s, heads, dense, w);
    });
    for (T* x : {p.dq, p.dk, p.dg}) clear_unused(p, x, p.heads * p.K);
    clear_unused(p, p.dv, p.heads * p.V), clear_unused(p, p.dbeta, p.heads);
  });
}
}  // namespace

void ChunkBackward::supports(const kb::Call& c, const Op&) { wants_floats(c), wants_mild_decay(c); }
int64_t ChunkBackward::workspace(const kb::Call& c, const Op&) { return work_bytes(c); }
void ChunkBackward::launch(const kb::Call& c, const Op& op) { run(c, op, true); }

void ChunkRescaledBackward::supports(const kb::Call& c, const Op&) { wants_floats(c); }
int64_t ChunkRescaledBackward::workspace(const kb::Call& c, const Op&) { return work_bytes(c); }
void ChunkRescaledBackward::launch(const kb::Call& c, const Op& op) { run(c, op, false); }

}  // namespace kda
#endif
