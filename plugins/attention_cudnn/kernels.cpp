#include "kernels.h"

#include "graph.h"
#include "packing.h"

namespace kb::cudnn {
namespace {

template <class O>
Shape shape_of(const Call& c, const O& op, bool backward) {
  return {c.dim(0, 0),    c.dim(3, 0) - 1, c.dim(0, 1),
          c.dim(1, 1),    c.dim(0, 2),     c.dim(2, 2),
          op.causal,      backward,        backward && c.c->device && c.c->device->deterministic,
          float(op.scale)};
}

constexpr int64_t kLength = 512;  // 256: slower by half; 2,048: faster by a third

// What can be said without cuDNN comes first: it takes a second to load.
void decline(const Call& c, const Shape& s) {
  if (c.in(0).dtype != KB_BF16) fail("cuDNN's attention takes bf16 here but got ", dtype_name(c.in(0).dtype));
  if (!c.c->device || c.c->device->arch != 90)
    fail("cuDNN's attention was tried on compute capability 9.0 alone but got ",
         c.c->device ? double(c.c->device->arch) / 10 : 0.0);
  if (s.documents < 1) fail("cuDNN's attention needs room for a document but got none");
  if (s.tokens > INT32_MAX / 2) fail("cuDNN's attention takes fewer than 2^30 tokens but got ", s.tokens);
  if (s.heads > kMostHeads) fail("cuDNN's attention takes at most ", kMostHeads, " heads here but got ", s.heads);
  if (s.tokens < kLength * s.documents)
    fail("cuDNN's attention takes room for ", kLength, " tokens a document and more, for which it is faster, but got ",
         s.tokens, " for ", s.documents);
  for (const int64_t width : {s.key_width, s.value_width})
    if (width % 8 != 0 || width > 256)
      fail("cuDNN's attention takes multiples of 8 channels up to 256 but got ", s.key_width, "/", s.value_width);
}

// Parts of a workspace, one after the other, from the first multiple of 256 bytes on.
constexpr size_t kSlack = 192;  // the host aligns to 64
char* aligned(void* base) { return reinterpret_cast<char*>(rounded(reinterpret_cast<size_t>(base))); }
class Parts {
 public:
  explicit Parts(void* base) : base_(aligned(base)) {}
  template <class T>
  T* take(size_t n) {
    char* at = base_ ? base_ + used_ : nullptr;
    used_ += rounded(n * sizeof(T));
    return reinterpret_cast<T*>(at);
  }
  size_t used() const { return used_; }

 private:
  char* base_;
  size_t used_ = 0;
};

Packing packing(const Shape& s, const int32_t* cu, Parts& parts) {
  const auto n = size_t(s.documents);
  Packing p{cu, s.tokens, s.documents, parts.take<int32_t>(n), {}};
  const int64_t width[5] = {s.heads * s.key_width, s.groups * s.key_width, s.groups * s.value_width,
                            s.heads * s.value_width, s.heads};
  for (int i = 0; i < 5; ++i) p.offsets[i] = {parts.take<int64_t>(n + 1), width[i]};
  return p;
}
Operands operands(const Packing& p) {
  Operands all{{length, p.length}};
  for (int i = 0; i < 5; ++i) all[at_q + i] = p.offsets[i].at;
  return all;
}

// A result, or a part of the workspace for one that nobody wants: a graph writes all of its results. The room is always asked for,
// since what is wanted is known at the launch alone.
void* result(const Call& c, uint32_t i, size_t bytes, Parts& parts) {
  char* spare = parts.take<char>(bytes);
  return c.wanted(i) ? c.put<void>(i) : spare;
}
struct ForwardParts {
  Packing p;
  void* o;
  float *most, *total;
  size_t used;
};
ForwardParts forward_parts(const Call& c, const Shape& s) {
  Parts parts(c.c->workspace);
  const auto rows = size_t(s.tokens * s.heads);
  ForwardParts f{packing(s, c.get<int32_t>(3), parts), nullptr, nullptr, nullptr, 0};
  f.o = result(c, 0, rows * size_t(s.value_width) * 2, parts);
  f.most = parts.take<float>(rows);
  f.total = parts.take<float>(rows);
  f.used = parts.used();
  return f;
}
struct BackwardParts {
  Packing p;
  void* d[3];
  int64_t bytes[3];  // of a row
  size_t used;
};
BackwardParts backward_parts(const Call& c, const Shape& s) {
  Parts parts(c.c->workspace);
  BackwardParts b{packing(s, c.get<int32_t>(3), parts),
                  {},
                  {s.heads * s.key_width * 2, s.groups * s.key_width * 2, s.groups * s.value_width * 2},
                  0};
  for (uint32_t i = 0; i < 3; ++i) b.d[i] = result(c, i, size_t(s.tokens * b.bytes[i]), parts);
  b.used = parts.used();
  return b;
}
// The frontend wants operands that it may write, and does not.
void* in(const Call& c, uint32_t i) { return const_cast<void*>(c.get<void>(i)); }
void* at(const Call& c, size_t offset) { return aligned(c.c->workspace) + offset; }
cudaStream_t stream_of(const Call& c) { return static_cast<cudaStream_t>(c.c->device->stream); }

}  // namespace

void Attention::supports(const Call& c, const Op& op) {
  const Shape s = shape_of(c, op, false);
  decline(c, s);
  Graph::of(s);
}
uint64_t Attention::workspace(const Call& c, const Op& op) {
  const Shape s = shape_of(c, op, false);
  return kSlack + forward_parts(c, s).used + Graph::of(s).workspace();
}
void Attention::launch(const Call& c, const Op& op) {
  if (!c.wanted(0) && !c.wanted(1) && !c.wanted(2)) return;
  const Shape s = shape_of(c, op, false);
  const ForwardParts f = forward_parts(c, s);
  pack(f.p, stream_of(c));
  if (s.tokens > 0) {
    Operands all = operands(f.p);
    all[q] = in(c, 0), all[k] = in(c, 1), all[v] = in(c, 2);
    all[o] = f.o, all[most] = f.most, all[total] = f.total;
    Graph::of(s).run(all, at(c, f.used), stream_of(c));
    if (c.wanted(0)) clear_outside(f.p, f.o, s.heads * s.value_width * 2, stream_of(c));
    if (c.wanted(1)) log_sum(f.p, f.most, f.total, s.heads, c.put<float>(1), stream_of(c));
  }
  if (c.wanted(2)) highest(f.p, f.most, s.heads, c.put<float>(2), stream_of(c));
}

void AttentionBackward::supports(const Call& c, const Op& op) {
  const Shape s = shape_of(c, op, true);
  decline(c, s);
  // cuDNN 9.14 takes more, 256/256 and 176/16 say, and its gradients are wrong; with other multiples of 8 the frontend sizes its
  // workspace by documents x tokens and not by tokens.
  const bool narrow = s.key_width <= 128 && s.value_width <= 128,
             latent = s.key_width > 128 && s.key_width <= 192 && s.value_width > 64 && s.value_width <= 128;
  if (!(narrow || latent) || s.key_width % 16 || s.value_width % 16)
    fail(
        "cuDNN's attention_backward takes multiples of 16 channels here, up to 128/128, or above 128/64 up to 192/128, "
        "but got ",
        s.key_width, "/", s.value_width);
  constexpr size_t kMost = size_t(64) << 20;
  if (s.deterministic && deterministic_bytes(s) > kMost)
    fail("cuDNN's attention_backward with sums in a fixed order may take ", kMost >> 20, " MiB but needs ",
         deterministic_bytes(s) >> 20, " MiB; set train.deterministic = false");
  Graph::of(s);
}
uint64_t AttentionBackward::workspace(const Call& c, const Op& op) {
  const Shape s = shape_of(c, op, true);
  return kSlack + backward_parts(c, s).used + Graph::of(s).workspace();
}
void AttentionBackward::launch(const Call& c, const Op& op) {
  const Shape s = shape_of(c, op, true);
  if (s.tokens == 0 || (!c.wanted(0) && !c.wanted(1) && !c.wanted(2))) return;
  const BackwardParts b = backward_parts(c, s);
  const Graph& g = Graph::of(s);
  pack(b.p, stream_of(c));
  Operands all = operands(b.p);
  all[q] = in(c, 0), all[k] = in(c, 1), all[v] = in(c, 2);
  all[o] = in(c, 4), all[lse] = in(c, 5), all[up] = in(c, 6);
  all[dq] = b.d[0], all[dk] = b.d[1], all[dv] = b.d[2];
  // Packed documents read parts of it that nothing has written (cuDNN before 9.18), and a NaN there spreads.
  if (const cudaError_t e = cudaMemsetAsync(at(c, b.used), 0, g.workspace(), stream_of(c)); e != cudaSuccess)
    fail("cuDNN's workspace must be cleared but: ", cudaGetErrorString(e));
  g.run(all, at(c, b.used), stream_of(c));
  for (uint32_t i = 0; i < 3; ++i)
    if (c.wanted(i)) clear_outside(b.p, b.d[i], b.bytes[i], stream_of(c));
}

}  // namespace kb::cudnn
