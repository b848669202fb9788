// backward.cpp: kernels `chunk` and `chunk-rescaled` of `kda_backward`. Nothing is saved by the forward: a first sweep keeps the
// state every four chunks, then each group of four is run again, keeping all, and reversed.
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

template <bool Dense, class T>
void backward_span(const Problem<T>& p, const Span& s, T* work) {
  constexpr int64_t step = kGroup * kChunk;
  const int64_t Kp = padded(p.K), Vp = padded(p.V), matrix = Kp * Vp;
  T *dS = work, *states = dS + matrix, *w = states + (kGroup + 1) * matrix;  // states: entering each chunk of the group, and the end
  ChunkData<T> x[kGroup];
  for (auto& c : x) w = c.place(w, p.K, p.V);
  BackwardData<T> y;
  T* kept = y.place(w, p.K, p.V);  // [groups, Kp, Vp]

  T* S = states;
  load_state(p, s, S);
  for (int64_t t = s.lo; t < s.hi; t += kChunk) {
    if ((t - s.lo) % step == 0) {
      std::copy_n(S, matrix, kept + (t - s.lo) / step * matrix);
      if (t + step >= s.hi) break;  // the last group is run again anyway
    }
    prefetch_chunk(p, s, t + kChunk, false);
    prepare<Dense, false>(p, s.head, t, kChunk, x[0]);
    pairs<Dense, false>(p, x[0]);
    errors(p, s.head, t, kChunk, S, x[0]);
    advance(p, S, x[0]);
  }
  if (p.d_state)
    copy_in(p.d_state + p.matrix(s), p.V, p.K, p.V, dS, Kp, Vp);
  else
    std::fill_n(dS, matrix, T(0));
  for (int64_t group = (s.hi - s.lo + step - 1) / step - 1; group >= 0; --group) {
    const int64_t from = s.lo + group * step, chunks = HWY_MIN(kGroup, (s.hi - from + kChunk - 1) / kChunk);
    std::copy_n(kept + group * matrix, matrix, states);
    for (int64_t c = 0; c < chunks; ++c) {
      const int64_t t = from + c * kChunk, n = HWY_MIN(kChunk, s.hi - t);
      prepare<Dense, true>(p, s.head, t, n, x[c]);
      pairs<Dense, true>(p, x[c]);
      errors(p, s.head, t, n, states + c * matrix, x[c]);
      std::copy_n(states + c * matrix, matrix, states + (c + 1) * matrix);
      advance(p, states + (c + 1) * matrix, x[c]);
    }
    for (int64_t c = chunks - 1; c >= 0; --c) {
      const int64_t t = from + c * kChunk, n = HWY_MIN(kChunk, s.hi - t);
      prefetch_chunk(p, s, t - step, true);
      chunk_back<Dense>(p, s.head, t, n, states + c * matrix, states + (c + 1) * matrix, dS, x[c], y);
    }
  }
  if (p.ds0) copy_out(dS, Vp, p.ds0 + p.matrix(s), p.V, p.K, p.V);
}

void backward32(const Problem<float>& p, const Span& s, bool dense, float* work) {
  dense ? backward_span<true>(p, s, work) : backward_span<false>(p, s, work);
}
void backward64(const Problem<double>& p, const Span& s, bool dense, double* work) {
  dense ? backward_span<true>(p, s, work) : backward_span<false>(p, s, work);
}
int64_t backward_work(int64_t tokens, int64_t K, int64_t V) {  // elements a thread
  const int64_t groups = (tokens + kGroup * kChunk - 1) / (kGroup * kChunk);
  return (kGroup + 2 + groups) * padded(K) * padded(V) + kGroup * ChunkData<float>::size(K, V) + BackwardData<float>::size(K, V);
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

int64_t work(const kb::Call& c) { return HWY_DYNAMIC_DISPATCH(backward_work)(c.dim(kQ, 0), c.dim(kQ, 2), c.dim(kV, 2)); }

int64_t work_bytes(const kb::Call& c) { return c.threads() * work(c) * (c.in(kQ).dtype == KB_F64 ? 8 : 4); }

void run(const kb::Call& c, const KdaBackwardOp& op, bool dense) {
  kb::floats(c.in(kQ).dtype, [&]<class T>() {
    const Problem<T> p = backward_problem<T>(c, op);
    const int64_t size = work(c);
    each_head(c, p, [&](const Span& s, int32_t thread) {
      const FlushDenormals flush;
      T* w = c.workspace<T>() + thread * size;
      if constexpr (sizeof(T) == 4)
        HWY_DYNAMIC_DISPATCH(backward32)(p, s, dense, w);
      else
        HWY_DYNAMIC_DISPATCH(backward64)(p, s, dense, w);
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
