// forward.cpp: kernels `chunk` and `chunk-rescaled` of `kda`.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "forward.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h:
#include "chunk-inl.h"
#include "flush.h"
#include "kernels.h"

HWY_BEFORE_NAMESPACE();
namespace kda {
namespace HWY_NAMESPACE {

template <bool Dense, class T>
void forward_chunk(const Problem<T>& p, int64_t head, int64_t t, int64_t end, T* S, T* O, const ChunkData<T>& x) {
  const int64_t n = HWY_MIN(kChunk, end - t);
  const bool last = t + kChunk >= end;
  const int64_t Kp = padded(p.K), Vp = padded(p.V);
  prepare<Dense, false>(p, head, t, n, x, t + kChunk, HWY_MIN(t + 2 * kChunk, end));
  if (p.o) {
    pairs<Dense, true>(p, x);
    for (int64_t r = t; r < t + n; ++r)  // written below
      for (int64_t v = 0; v < p.V; v += kLine<T>) __builtin_prefetch(p.o + p.value(r, head) + v, 1, 2);
    product<Start::kZero>(kChunk, Vp, p.K, x.qk_in, Kp, 1, S, Vp, O, Vp);
  } else {
    pairs<Dense, false>(p, x);
  }
  errors(p, head, t, n, S, x);
  if (p.o) {
    product<Start::kSelf>(kChunk, Vp, kChunk, x.pm, kChunk, 1, x.U, Vp, O, Vp);
    copy_out(O, Vp, p.o + p.value(t, head), p.heads * p.V, n, p.V);
  }
  if (p.state || !last) advance(p, S, x);
}

template <bool Dense, class T>
void forward_heads(const Problem<T>& p, const Span& first, int64_t heads, T* work) {
  const int64_t Kp = padded(p.K), Vp = padded(p.V), matrix = Kp * Vp;
  T *O = work, *states = O + kChunk * Vp;  // states [heads, Kp, Vp]
  ChunkData<T> x;
  x.place(states + heads * matrix, p.K, p.V);
  auto span = [&](int64_t h) { return Span{first.document, first.head + h, first.lo, first.hi}; };
  for (int64_t h = 0; h < heads; ++h) load_state(p, span(h), states + h * matrix);
  for (int64_t t = first.lo; t < first.hi; t += kChunk)
    for (int64_t h = 0; h < heads; ++h) forward_chunk<Dense>(p, first.head + h, t, first.hi, states + h * matrix, O, x);
  for (int64_t h = 0; p.state && h < heads; ++h)
    copy_out(states + h * matrix, Vp, p.state + p.matrix(span(h)), p.V, p.K, p.V);
}

void forward32(const Problem<float>& p, const Span& s, int64_t heads, bool dense, float* work) {
  dense ? forward_heads<true>(p, s, heads, work) : forward_heads<false>(p, s, heads, work);
}
void forward64(const Problem<double>& p, const Span& s, int64_t heads, bool dense, double* work) {
  dense ? forward_heads<true>(p, s, heads, work) : forward_heads<false>(p, s, heads, work);
}
int64_t forward_work(int64_t heads, int64_t K, int64_t V) {  // elements a thread
  return heads * padded(K) * padded(V) + kChunk * padded(V) + ChunkData<float>::size(K, V);
}

}  // namespace HWY_NAMESPACE
}  // namespace kda
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kda {
namespace {
HWY_EXPORT(forward32);
HWY_EXPORT(forward64);
HWY_EXPORT(forward_work);

int64_t work(const kb::Call& c) {
  return HWY_DYNAMIC_DISPATCH(forward_work)(heads_together(c), c.dim(kQ, 2), c.dim(kV, 2));
}

int64_t work_bytes(const kb::Call& c) { return c.threads() * work(c) * (c.in(kQ).dtype == KB_F64 ? 8 : 4); }

void run(const kb::Call& c, const KdaOp& op, bool dense) {
  kb::floats(c.in(kQ).dtype, [&]<class T>() {
    const Problem<T> p = forward_problem<T>(c, op);
    const int64_t size = work(c);
    each_group(c, p, heads_together(c), [&](const Span& s, int64_t heads, int32_t thread) {
      const FlushDenormals flush;
      T* w = c.workspace<T>() + thread * size;
      if constexpr (sizeof(T) == 4)
        HWY_DYNAMIC_DISPATCH(forward32)(p, s, heads, dense, w);
      else
        HWY_DYNAMIC_DISPATCH(forward64)(p, s, heads, dense, w);
    });
    clear_unused(p, p.o, p.heads * p.V);
  });
}
void wants_length(const kb::Call& c) {  // decode: sixteen rows of work for a few tokens do not pay
  const int64_t tokens = c.dim(kQ, 0), documents = c.dim(kCu, 0) - 1;
  if (c.has(kSlot) && tokens <= 8 * documents)
    kb::fail("wants more than 8 tokens a sequence but got ", tokens, " tokens for ", documents, " sequences");
}
}  // namespace

void Chunk::supports(const kb::Call& c, const Op&) { wants_floats(c), wants_mild_decay(c), wants_length(c); }
int64_t Chunk::workspace(const kb::Call& c, const Op&) { return work_bytes(c); }
void Chunk::launch(const kb::Call& c, const Op& op) { run(c, op, true); }

void ChunkRescaled::supports(const kb::Call& c, const Op&) { wants_floats(c), wants_length(c); }
int64_t ChunkRescaled::workspace(const kb::Call& c, const Op&) { return work_bytes(c); }
void ChunkRescaled::launch(const kb::Call& c, const Op& op) { run(c, op, false); }

}  // namespace kda
#endif
