// Gated multi-head latent attention without positions (NoPE): keys and values come from a latent of kv_rank channels,
// which is also all that is cached. After each step the attention clips its own weights by its largest logit (QK-clip).
#include "kitbash/plugin.h"
using kb::Value;

struct GatedMla : kb::Attention<GatedMla> {
  int64_t heads = 4, q_rank = 48, kv_rank = 32, nope_dim = 16, rope_dim = 8, v_dim = 16;
  bool gate = true;
  double qk_clip = 100, std = 0.02;

  Value build(kb::Builder& b, Value x, const kb::Sequence& seq) const {
    const int64_t tokens = x.dim(0), d = x.dim(1), N = nope_dim, R = rope_dim, V = v_dim, C = kv_rank;
    const Value q = b.reshape(queries(b, x), {tokens, heads, N + R});
    const Value ckr = b.linear(x, matrix(b, "kv_a", C + R, d));  // [tokens, latent | rope]
    const Value c = b.rms_norm(b.slice(ckr, 1, 0, C), b.param("kv_a_norm", b.ones({C}), kb::wide_vector), kLatentEps);
    const Value kr = b.slice(ckr, 1, C, C + R);
    const Value kv_b = matrix(b, "kv_b", heads * (N + V), C, heads);
    Value y =
        b.reshape(b.stateful() ? cached(b, q, c, kr, kv_b, seq) : packed(b, q, c, kr, kv_b, seq), {tokens, heads * V});
    if (gate) y = b.sigmoid(b.linear(x, matrix(b, "g_proj", heads * V, d))) * y;
    if (y.type().dtype != x.type().dtype) y = b.narrow(y);  // where the op keeps its output wide
    return b.linear(y, matrix(b, "o_proj", d, heads * V));
  }

  // gamma = min(1, qk_clip / peak) a head; nope rows of q and k times sqrt(gamma), rope rows of q times gamma; the rope
  // rows of k serve all heads and stay. The host sets the peak back to 0 after the step.
  void update(kb::Builder& b) const {
    const Value peak = b.find("peak"), kv_b = b.find("kv_b"), q_w = b.find(q_name());
    if (!peak || !q_w || !kv_b) return;
    const int64_t H = heads, N = nope_dim, R = rope_dim, V = v_dim, q_in = q_w.dim(1);
    const Value most = b.all_reduce(peak, "max");  // [heads]
    b.report("qk_peak", most);
    const Value ratio = b.fill({1}, qk_clip) / b.maximum(most, b.fill({1}, 1e-30));
    const Value g = b.reshape(b.minimum(b.ones({1}), ratio), {H, 1, 1}), root = b.sqrt(g);
    const Value q = b.reshape(q_w, {H, N + R, q_in}), kv = b.reshape(kv_b, {H, N + V, kv_rank});
    const Value q_now =
        b.concat({like(b, q_w, b.slice(q, 1, 0, N) * root), like(b, q_w, b.slice(q, 1, N, N + R) * g)}, 1);
    const Value kv_now = b.concat({like(b, kv_b, b.slice(kv, 1, 0, N) * root), b.slice(kv, 1, N, N + V)}, 1);
    b.write(q_w, b.reshape(q_now, {H * (N + R), q_in}));
    b.write(kv_b, b.reshape(kv_now, {H * (N + V), kv_rank}));
  }

 private:
  static constexpr double kLatentEps = 1e-6;  // of the reference model's two latent norms; all its others use 1e-5

  const char* q_name() const { return q_rank ? "q_b" : "q_proj"; }
  Value matrix(kb::Builder& b, const char* name, int64_t out, int64_t in, int64_t blocks = 1) const {
    return b.param(name, b.normal({out, in}, std), {.blocks = blocks});
  }
  static Value like(kb::Builder& b, Value model, Value x) {
    return x.type().dtype == model.type().dtype ? x : b.cast(x, kb_dtype(model.type().dtype));
  }
  Value queries(kb::Builder& b, Value x) const {  // [tokens, heads * (nope + rope)]
    const int64_t d = x.dim(1), rows = heads * (nope_dim + rope_dim);
    if (!q_rank) return b.linear(x, matrix(b, q_name(), rows, d, heads));
    const Value a = b.linear(x, matrix(b, "q_a", q_rank, d));
    const Value n = b.rms_norm(a, b.param("q_a_norm", b.ones({q_rank}), kb::wide_vector), kLatentEps);
    return b.linear(n, matrix(b, q_name(), rows, q_rank, heads));
  }

  // Train, eval: keys and values of every head are written out.
  Value packed(kb::Builder& b, Value q, Value c, Value kr, Value kv_b, const kb::Sequence& seq) const {
    const int64_t tokens = q.dim(0), N = nope_dim, R = rope_dim, V = v_dim;
    const Value kv = b.reshape(b.linear(c, kv_b), {tokens, heads, N + V});
    const Value shared = b.broadcast(b.reshape(kr, {tokens, 1, R}), {tokens, heads, R});
    const Value k = b.concat({b.slice(kv, 2, 0, N), shared}, 2);
    const kb::Values a = b.attention(q, k, b.slice(kv, 2, N, N + V), seq.cu, scale(), true);
    if (b.training() && qk_clip > 0) {
      const Value peak = b.state("peak", KB_STATE_STEP, {heads});  // the largest logit of the step
      b.write(peak, b.maximum(peak, a[2]));
    }
    return a[0];  // [tokens, heads, v_dim]
  }

  // Prefill, decode: kv_b is absorbed into queries and outputs, so that the heads share one key and value, the cached
  // row. Values are the whole row, whose rope channels are dropped afterwards: slicing the cache would copy it.
  Value cached(kb::Builder& b, Value q, Value c, Value kr, Value kv_b, const kb::Sequence& seq) const {
    const int64_t N = nope_dim, R = rope_dim, V = v_dim, C = kv_rank;
    const Value w = b.reshape(kv_b, {heads, N + V, C}), wk = b.slice(w, 1, 0, N), wv = b.slice(w, 1, N, N + V);
    const Value ql =
        b.permute(b.matmul(b.permute(b.slice(q, 2, 0, N), {1, 0, 2}), wk), {1, 0, 2});  // [tokens, heads, C]
    const Value cache = b.state("latent", KB_STATE_TOKEN, {C + R}, KB_COMPUTE);
    const Value now = b.cache_append(cache, b.concat({c, kr}, 1), seq);
    b.write(cache, now);
    const Value k = b.reshape(now, {now.dim(0), now.dim(1), 1, C + R});
    Value o = b.attention_cached(b.concat({ql, b.slice(q, 2, N, N + R)}, 2), k, k, seq, scale());
    if (o.type().dtype != kv_b.type().dtype) o = b.narrow(o);
    o = b.permute(b.slice(o, 2, 0, C), {1, 0, 2});              // [heads, tokens, C]
    return b.permute(b.matmul(o, wv, false, true), {1, 0, 2});  // [tokens, heads, v_dim]
  }
  double scale() const { return 1 / std::sqrt(double(nope_dim + rope_dim)); }
};
KITBASH_SCHEMA(
    GatedMla, field("heads", &Self::heads, "query heads").range(1, 512),
    field("q_rank", &Self::q_rank, "rank of the query projection; 0: one full matrix q_proj").range(0, 16384),
    field("kv_rank", &Self::kv_rank, "channels of the key/value latent, cached per token").range(1, 16384),
    field("nope_dim", &Self::nope_dim, "query/key channels from the latent, per head").range(1, 1024),
    field("rope_dim", &Self::rope_dim, "query/key channels shared by the heads; never rotated").range(1, 1024),
    field("v_dim", &Self::v_dim, "value channels per head").range(1, 1024),
    field("gate", &Self::gate, "sigmoid gate on the output, from the layer's input"),
    field("qk_clip", &Self::qk_clip, "bound of the largest logit; 0: no clip").range(0, 1e6),
    field("std", &Self::std, "standard deviation at the start").range(0, 10))

KITBASH_PLUGIN("attention-gated-mla", "0.1.0", "Apache-2.0", component<GatedMla>("gated-mla"))
