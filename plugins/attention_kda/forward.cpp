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
void forward_span(const Problem<T>& p, const Span& s, T* work) {
  const int64_t Kp = padded(p.K), Vp = padded(p.V);
  T *S = work, *O = S + Kp * Vp;
  ChunkData<T> x;
  x.place(O + kChunk * Vp, p.K, p.V);
  load_state(p, s, S);
  for (int64_t t = s.lo; t < s.hi; t += kChunk) {
    const int64_t n = HWY_MIN(kChunk, s.hi - t);
    prefetch_chunk(p, s, t + kChunk, false);
    prepare<Dense, false>(p, s.head, t, n, x);
    if (p.o) {
      pairs<Dense, true>(p, x);
      product<Start::kZero>(kChunk, Vp, p.K, x.qk_in, Kp, 1, S, Vp, O, Vp);
    } else {
      pairs<Dense, false>(p, x);
    }
    errors(p, s.head, t, n, S, x);
    if (p.o) {
      product<Start::kSelf>(kChunk, Vp, kChunk, x.pm, kChunk, 1, x.U, Vp, O, Vp);
      copy_out(O, Vp, p.o + p.value(t, s.head), p.heads * p.V, n, p.V);
    }
    if (p.state || t + kChunk < s.hi) advance(p, S, x);
  }
  if (p.state) copy_out(S, Vp, p.state + p.matrix(s), p.V, p.K, p.V);
}

void forward32(const Problem<float>& p, const Span& s, bool dense, float* work) {
  dense ? forward_span<true>(p, s, work) : forward_span<false>(p, s, work);
}
void forward64(const Problem<double>& p, const Span& s, bool dense, double* work) {
  dense ? forward_span<true>(p, s, work) : forward_span<false>(p, s, work);
}
int64_t forward_work(int64_t K, int64_t V) {  // elements a thread
  return padded(K) * padded(V) + kChunk * padded(V) + ChunkData<float>::size(K, V);
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

int64_t work(const kb::Call& c) { return HWY_DYNAMIC_DISPATCH(forward_work)(c.dim(kQ, 2), c.dim(kV, 2)); }

int64_t work_bytes(const kb::Call& c) { return c.threads() * work(c) * (c.in(kQ).dtype == KB_F64 ? 8 : 4); }

void run(const kb::Call& c, const KdaOp& op, bool dense) {
  kb::floats(c.in(kQ).dtype, [&]<class T>() {
    const Problem<T> p = forward_problem<T>(c, op);
    const int64_t size = work(c);
    each_head(c, p, [&](const Span& s, int32_t thread) {
      const FlushDenormals flush;
      T* w = c.workspace<T>() + thread * size;
      if constexpr (sizeof(T) == 4)
        HWY_DYNAMIC_DISPATCH(forward32)(p, s, dense, w);
      else
        HWY_DYNAMIC_DISPATCH(forward64)(p, s, dense, w);
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
