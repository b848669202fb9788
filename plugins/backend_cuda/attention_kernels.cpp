// attention_kernels.cpp: attention, its gradients and the serving cache as kernels of the base ops.
#include "attention_kernels.h"

#include "attention_call.h"

namespace kb::cuda {
namespace {

void decline_type(const Call& c, const char* op) {
  if (c.in(0).dtype != KB_F32 && c.in(0).dtype != KB_BF16)
    fail(op, " on CUDA takes f32 or bf16 but got ", dtype_name(c.in(0).dtype));
}
// Blocks of a launch are numbered by an int.
void decline_size(int64_t blocks, const char* op) {
  if (blocks > INT32_MAX) fail(op, " on CUDA takes fewer than 2^31 pieces of work but got ", blocks);
}
void decline(const Call& c, const char* op) {
  decline_type(c, op);
  const AttentionShape s = attention_shape(c, 1, true);
  if (s.key_width > kAttentionWidth || s.value_width > kAttentionWidth)
    fail(op, " on CUDA takes at most ", kAttentionWidth, " channels a head but got ", s.key_width, " and ",
         s.value_width);
  if (s.tokens > INT32_MAX / 2) fail(op, " on CUDA takes fewer than 2^30 tokens but got ", s.tokens);
  decline_size(attention_tiles_most(s.tokens, s.documents) * s.heads, op);
}

}  // namespace

void Attention::supports(const Call& c, const Op&) { decline(c, "attention"); }
uint64_t Attention::workspace(const Call& c, const Op& op) {
  return attention_forward_bytes(attention_shape(c, op.scale, op.causal));
}
void Attention::launch(const Call& c, const Op& op) {
  const AttentionForwardArgs a = forward_args(c, op);
  if (!a.o && !a.lse && !a.peak) return;
  (c.in(0).dtype == KB_BF16 ? attention_forward_bf16 : attention_forward_f32)(a, stream_of(c));
}

void AttentionBackward::supports(const Call& c, const Op&) { decline(c, "attention_backward"); }
uint64_t AttentionBackward::workspace(const Call& c, const Op& op) {
  return attention_backward_bytes(attention_shape(c, op.scale, op.causal));
}
void AttentionBackward::launch(const Call& c, const Op& op) {
  (c.in(0).dtype == KB_BF16 ? attention_backward_bf16 : attention_backward_f32)(backward_args(c, op), stream_of(c));
}

namespace {

CachedAttentionArgs cached_args(const Call& c, const ops::AttentionCached& op) {
  CachedAttentionArgs a{};
  a.tokens = c.dim(0, 0), a.heads = c.dim(0, 1), a.key_width = c.dim(0, 2);
  a.slots = c.dim(1, 0), a.capacity = c.dim(1, 1), a.groups = c.dim(1, 2), a.value_width = c.dim(2, 3);
  a.documents = c.dim(3, 0) - 1, a.scale = float(op.scale), a.bf16 = c.in(0).dtype == KB_BF16;
  a.q = c.get<void>(0), a.k = c.get<void>(1), a.v = c.get<void>(2);
  a.cu = c.get<int32_t>(3), a.past = c.get<int32_t>(4), a.slot = c.get<int32_t>(5);
  a.o = c.put<void>(0), a.workspace = c.c->workspace;
  return a;
}

}  // namespace

void AttentionCached::supports(const Call& c, const Op&) {
  decline_type(c, "attention_cached");
  constexpr int64_t kWidest = 4096;  // queries of a block lie in shared memory
  if (c.dim(0, 2) > kWidest)
    fail("attention_cached on CUDA takes at most ", kWidest, " key channels but got ", c.dim(0, 2));
  decline_size((c.dim(0, 0) + c.dim(3, 0) + 2) * c.dim(0, 1), "attention_cached");
}
uint64_t AttentionCached::workspace(const Call& c, const Op& op) { return cached_attention_bytes(cached_args(c, op)); }
void AttentionCached::launch(const Call& c, const Op& op) {
  if (c.wanted(0)) cached_attention(cached_args(c, op), stream_of(c));
}

void CacheAppend::supports(const Call& c, const Op&) {
  if (c.in(0).dtype != c.in(1).dtype)
    fail("rows must have the cache's type ", dtype_name(c.in(0).dtype), " but are ", dtype_name(c.in(1).dtype),
         "; cast them first");
}
void CacheAppend::launch(const Call& c, const Op&) {
  if (!c.wanted(0)) return;
  const kb_type& cache = c.in(0);
  CacheAppendArgs a{};
  a.tokens = c.dim(1, 0), a.documents = c.dim(2, 0) - 1, a.slots = cache.shape[0], a.capacity = cache.shape[1];
  a.bytes = cache.dtype == KB_U8                             ? 1
            : cache.dtype == KB_BF16                         ? 2
            : cache.dtype == KB_F64 || cache.dtype == KB_I64 ? 8
                                                             : 4;
  for (int i = 2; i < cache.rank; ++i) a.bytes *= cache.shape[i];
  a.rows = c.get<void>(1), a.cu = c.get<int32_t>(2), a.past = c.get<int32_t>(3), a.slot = c.get<int32_t>(4);
  a.cache = c.put<void>(0);
  cache_append(a, stream_of(c));
}

}  // namespace kb::cuda
