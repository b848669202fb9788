// attention_wgmma.cpp: attention and its gradients for sm_90a as kernels of the base ops.
#include "attention_wgmma.h"

#include "attention_call.h"
#include "attention_kernels.h"
#include "tensor_map.h"

namespace kb::cuda {
// The copy engine's descriptions of the operands. They hold addresses, so they are made again should these change.
struct AttentionWgmmaPlan {
  const void *q = nullptr, *k = nullptr, *v = nullptr, *up = nullptr;
  AttentionMaps maps{};
  const AttentionMaps& of(const AttentionShape& s, const void* q_at, const void* k_at, const void* v_at,
                          const void* up_at) {
    const auto map = [&](const void*& known, const void* at, int64_t width, CUtensorMap& m, int rows = 64) {
      if (at && s.tokens > 0 && at != known) m = tensor_map(at, width, s.tokens, 1, false, 0, rows), known = at;
    };
    const int rows = up_at ? 64 : 128;  // of keys and values
    map(q, q_at, s.heads * s.key_width, maps.q);
    map(k, k_at, s.groups * s.key_width, maps.k, rows);
    map(v, v_at, s.groups * s.value_width, maps.v, rows);
    map(up, up_at, s.heads * s.value_width, maps.up);
    return maps;
  }
};
namespace {

void decline(const Call& c, const char* op) {
  if (c.in(0).dtype != KB_BF16) fail(op, " by wgmma takes bf16 but got ", dtype_name(c.in(0).dtype));
  if (!c.c->device || c.c->device->arch != 90)
    fail(op, " by wgmma needs a device of compute capability 9.0 but got ", c.c->device ? c.c->device->arch : 0);
  if (!attention_wgmma_takes(c.dim(0, 2), c.dim(2, 2)))
    fail(op, " by wgmma takes 192/128, 128/128 or 64/64 channels of keys and values but got ", c.dim(0, 2), "/",
         c.dim(2, 2));
  const AttentionShape s = attention_shape(c, 1, true);
  if (s.tokens > INT32_MAX / 2 || attention_tiles_most(s.tokens, s.documents) * s.heads > INT32_MAX)
    fail(op, " by wgmma takes fewer than 2^31 pieces of work but got ", s.tokens, " tokens of ", s.heads, " heads");
}

}  // namespace

AttentionWgmmaState::AttentionWgmmaState() : state(std::make_unique<AttentionWgmmaPlan>()) {}
AttentionWgmmaState::~AttentionWgmmaState() = default;

void AttentionWgmma::supports(const Call& c, const Op& op) {
  decline(c, "attention");
  if (!(op.scale > 0)) fail("attention by wgmma needs a scale above 0 but got ", op.scale);
}
uint64_t AttentionWgmma::workspace(const Call& c, const Op& op) {
  return attention_forward_bytes(attention_shape(c, op.scale, op.causal));
}
std::unique_ptr<AttentionWgmmaState> AttentionWgmma::prepare(const Call&, const Op&) {
  return std::make_unique<AttentionWgmmaState>();
}
void AttentionWgmma::launch(const Call& c, const Op& op, AttentionWgmmaState& plan) {
  const AttentionForwardArgs a = forward_args(c, op);
  if (!a.o && !a.lse && !a.peak) return;
  attention_forward_wgmma(a, plan.state->of(a.s, a.q, a.k, a.v, nullptr), stream_of(c));
}

void AttentionBackwardWgmma::supports(const Call& c, const Op&) { decline(c, "attention_backward"); }
uint64_t AttentionBackwardWgmma::workspace(const Call& c, const Op& op) {
  return attention_backward_wgmma_bytes(attention_shape(c, op.scale, op.causal));
}
std::unique_ptr<AttentionWgmmaState> AttentionBackwardWgmma::prepare(const Call&, const Op&) {
  return std::make_unique<AttentionWgmmaState>();
}
void AttentionBackwardWgmma::launch(const Call& c, const Op& op, AttentionWgmmaState& plan) {
  const AttentionBackwardArgs a = backward_args(c, op);
  if (a.s.tokens == 0 || (!a.dq && !a.dk && !a.dv)) return;
  attention_backward_wgmma(a, plan.state->of(a.s, a.q, a.k, a.v, a.up), stream_of(c));
}

}  // namespace kb::cuda
