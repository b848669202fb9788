// kernels_cuda.cpp: from calls to launchers.
#include "kernels_cuda.h"

#include "chunk_cuda.h"

namespace kda::cuda {
namespace {

void wants_floats(const kb::Call& c) {
  const uint32_t t = c.in(kQ).dtype;
  if (t != KB_F32 && t != KB_BF16) kb::fail("wants f32 or bf16 but got ", kb::dtype_name(t));
}
void wants_narrow_keys(const kb::Call& c) {
  if (c.dim(kQ, 2) > 256) kb::fail("wants keys of at most 256 elements but got ", c.dim(kQ, 2));
}
void wants_tiles(const kb::Call& c) {
  if (c.in(kQ).dtype != KB_BF16) kb::fail("wants bf16 but got ", kb::dtype_name(c.in(kQ).dtype));
  const int64_t K = c.dim(kQ, 2), V = c.dim(kV, 2);
  if (K != V || (K != 64 && K != 128))
    kb::fail("wants keys and values of 64 or of 128 elements but got ", K, " and ", V);
}
void wants_mild_decay(const kb::Call& c) {
  const kb_type& g = c.in(kG);
  if (!(g.lo >= -5)) kb::fail("wants a log decay of at least -5 (80 / 16 tokens) but the decay gives down to ", g.lo);
  if (!(g.hi <= 0)) kb::fail("wants a log decay of at most 0 but the decay gives up to ", g.hi);
}
void wants_length(const kb::Call& c) {  // decode: 64 rows of work for a few tokens do not pay
  const int64_t tokens = c.dim(kQ, 0), documents = c.dim(kCu, 0) - 1;
  if (c.has(kSlot) && tokens <= 8 * documents)
    kb::fail("wants more than 8 tokens a sequence but got ", tokens, " tokens for ", documents, " sequences");
}
void check(cudaError_t e, const char* what) {
  if (e != cudaSuccess) kb::fail("the launch of ", what, " must succeed but CUDA says: ", cudaGetErrorString(e));
}
cudaStream_t stream_of(const kb::Call& c) { return static_cast<cudaStream_t>(c.c->device->stream); }

Problem operands(const kb::Call& c, double scale) {
  Problem p{};
  p.q = c.get<void>(kQ), p.k = c.get<void>(kK), p.v = c.get<void>(kV);
  p.g = c.get<float>(kG), p.beta = c.get<float>(kBeta), p.cu = c.get<int32_t>(kCu), p.s0 = c.get<float>(kS0);
  p.tokens = c.dim(kQ, 0), p.heads = c.dim(kQ, 1), p.documents = c.dim(kCu, 0) - 1, p.K = c.dim(kQ, 2),
  p.V = c.dim(kV, 2);
  p.scale = float(scale), p.bf16 = c.in(kQ).dtype == KB_BF16;
  return p;
}

// What every forward kernel does around its own work.
template <class F>
void forward(const kb::Call& c, const KdaOp& op, F&& run) {
  const Problem p = forward_problem(c, op);
  // The host gives s0's own buffer as the state of a serving call; whoever gives another gets the rows of other slots copied.
  if (p.slot && p.state && p.state != p.s0)
    check(cudaMemcpyAsync(p.state, p.s0, size_t(kb::elements(c.in(kS0))) * 4, cudaMemcpyDeviceToDevice, stream_of(c)),
          "the copy of the states");
  run(p);
  check(clear_unused(p, {{{p.o, p.heads * p.V * (p.bf16 ? 2 : 4)}}}, stream_of(c)),
        "the zeros behind the last document");
}
template <class F>
void backward(const kb::Call& c, const KdaBackwardOp& op, F&& run) {
  const Problem p = backward_problem(c, op);
  run(p);
  const int64_t size = p.bf16 ? 2 : 4, keys = p.heads * p.K, values = p.heads * p.V;
  const Outputs outputs{
      {{p.dq, keys * size}, {p.dk, keys * size}, {p.dv, values * size}, {p.dg, keys * 4}, {p.dbeta, p.heads * 4}}};
  check(clear_unused(p, outputs, stream_of(c)), "the zeros behind the last document");
}

int64_t records(const Problem& p) { return chunk_bound(p) * p.heads * record_bytes(p.K); }
int64_t chunk_workspace(const Problem& p) { return records(p) + segment_bytes(p); }
void chunk(const kb::Call& c, const KdaOp& op, bool dense) {
  forward(c, op, [&](const Problem& p) {
    Chunks chunks{};
    chunks.records = c.workspace<unsigned char>();
    chunks.segments = segments_in(p, chunks.records + records(p));
    check(chunk_prepare(p, dense, chunks, stream_of(c)), "the first kernel, of single chunks,");
    check(chunk_starts(p, chunks, stream_of(c)), "the walk over segments");
    check(chunk_forward(p, chunks, stream_of(c)), "the walk over the chunks");
  });
}

struct BackwardBytes {
  int64_t records, states, values, segments;
  explicit BackwardBytes(const Problem& p)
      : records(cuda::records(p)),
        states(chunk_bound(p) * p.heads * p.K * p.V * 2),
        values((p.tokens * p.heads * p.V * 2 + 255) / 256 * 256),
        segments(segment_bytes(p)) {}
  int64_t total() const { return records + 2 * states + 2 * values + segments; }
};
void chunk_backward(const kb::Call& c, const KdaBackwardOp& op, bool dense) {
  backward(c, op, [&](const Problem& p) {
    const BackwardBytes bytes(p);
    Chunks chunks{};
    chunks.records = c.workspace<unsigned char>();
    chunks.states = chunks.records + bytes.records;
    chunks.dstates = chunks.records + bytes.records + bytes.states;
    chunks.values = chunks.records + bytes.records + 2 * bytes.states;
    chunks.dvalues = p.dv ? p.dv : chunks.records + bytes.records + 2 * bytes.states + bytes.values;
    chunks.segments = segments_in(p, chunks.records + bytes.total() - bytes.segments);
    const bool gradients = p.dq || p.dk || p.dg || p.dbeta;
    check(chunk_prepare(p, dense, chunks, stream_of(c)), "the first kernel, of single chunks,");
    check(chunk_starts(p, chunks, stream_of(c)), "the walk over segments");
    if (gradients) check(chunk_sweep(p, chunks, stream_of(c)), "the forward walk");
    check(chunk_reverse(p, chunks, stream_of(c)), "the backward walk");
    if (gradients) check(chunk_gradient(p, dense, chunks, stream_of(c)), "the last kernel, of single chunks,");
  });
}

}  // namespace

Problem forward_problem(const kb::Call& c, const KdaOp& op) {
  Problem p = operands(c, op.scale);
  p.slot = c.get<int32_t>(kSlot), p.o = c.put<void>(0), p.state = c.put<float>(1);
  return p;
}
Problem backward_problem(const kb::Call& c, const KdaBackwardOp& op) {
  Problem p = operands(c, op.scale);
  p.d_o = c.get<void>(kDo), p.d_state = c.get<float>(kDstate);
  p.dq = c.put<void>(0), p.dk = c.put<void>(1), p.dv = c.put<void>(2);
  p.dg = c.put<float>(3), p.dbeta = c.put<float>(4), p.ds0 = c.put<float>(5);
  return p;
}

void Recurrent::supports(const kb::Call& c, const Op&) { wants_floats(c), wants_narrow_keys(c); }
void Recurrent::launch(const kb::Call& c, const Op& op) {
  forward(c, op, [&](const Problem& p) { check(recurrent(p, stream_of(c)), name); });
}

void RecurrentBackward::supports(const kb::Call& c, const Op&) { wants_floats(c), wants_narrow_keys(c); }
int64_t RecurrentBackward::workspace(const kb::Call& c, const Op& op) {
  return recurrent_backward_workspace(backward_problem(c, op));
}
void RecurrentBackward::launch(const kb::Call& c, const Op& op) {
  backward(c, op, [&](const Problem& p) { check(recurrent_backward(p, c.workspace<void>(), stream_of(c)), name); });
}

void Chunk::supports(const kb::Call& c, const Op&) { wants_tiles(c), wants_mild_decay(c), wants_length(c); }
int64_t Chunk::workspace(const kb::Call& c, const Op& op) { return chunk_workspace(forward_problem(c, op)); }
void Chunk::launch(const kb::Call& c, const Op& op) { chunk(c, op, true); }

void ChunkRescaled::supports(const kb::Call& c, const Op&) { wants_tiles(c), wants_length(c); }
int64_t ChunkRescaled::workspace(const kb::Call& c, const Op& op) { return chunk_workspace(forward_problem(c, op)); }
void ChunkRescaled::launch(const kb::Call& c, const Op& op) { chunk(c, op, false); }

void ChunkBackward::supports(const kb::Call& c, const Op&) { wants_tiles(c), wants_mild_decay(c); }
int64_t ChunkBackward::workspace(const kb::Call& c, const Op& op) {
  return BackwardBytes(backward_problem(c, op)).total();
}
void ChunkBackward::launch(const kb::Call& c, const Op& op) { chunk_backward(c, op, true); }

void ChunkRescaledBackward::supports(const kb::Call& c, const Op&) { wants_tiles(c); }
int64_t ChunkRescaledBackward::workspace(const kb::Call& c, const Op& op) {
  return BackwardBytes(backward_problem(c, op)).total();
}
void ChunkRescaledBackward::launch(const kb::Call& c, const Op& op) { chunk_backward(c, op, false); }

}  // namespace kda::cuda
