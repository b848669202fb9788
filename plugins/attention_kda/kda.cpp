// Kimi Delta Attention: the component and the list of what this plugin brings. Ops in kda_op.h, kernels in kernels.h.
#include "kernels.h"
#include "kitbash/plugin.h"

namespace kda {
using kb::Value;

struct Kda : kb::Attention<Kda> {
  int64_t heads = 4, head_dim = 32, conv = 4, gate_rank = 0;
  double eps = 1e-5, std = 0.02;
  kb::Slot decay = "bounded";

  Value build(kb::Builder& b, Value x, const kb::Sequence& seq) const {  // x [tokens, dim]
    const int64_t tokens = x.dim(0), dim = x.dim(1), width = heads * head_dim;
    const Value q = stream(b, x, seq, "q_proj", "q_conv", "q_tail"),
                k = stream(b, x, seq, "k_proj", "k_conv", "k_tail");
    const Value v = stream(b, x, seq, "v_proj", "v_conv", "v_tail");
    const Value z =
        b.wide(b.linear(b.linear(x, matrix(b, "f_a", head_dim, dim)), matrix(b, "f_b", width, head_dim))) + dt_bias(b);
    const Value beta = b.linear(x, matrix(b, "b_proj", heads, dim));  // [tokens, heads]
    Value memory;
    if (b.stateful()) memory = b.state("memory", KB_STATE_SEQUENCE, {heads, head_dim, head_dim}, KB_WIDE);
    const kb::Values y = mix(b, {q, k, v, b.reshape(z, {tokens, heads, head_dim}), beta, memory}, seq.cu, seq.slot);
    if (memory) b.write(memory, y[1]);
    const Value o = b.rms_norm(y[0], b.param("o_norm", b.ones({head_dim}), kb::wide_vector), eps);
    const Value gate = b.sigmoid(
        gate_rank ? b.linear(b.linear(x, matrix(b, "g_a", gate_rank, dim)), matrix(b, "g_b", width, gate_rank))
                  : b.linear(x, matrix(b, "g_proj", width, dim)));
    return b.linear(b.reshape(o, {tokens, width}) * gate, matrix(b, "o_proj", dim, width));
  }

  // Verb 1. Widths come from the operands, so that values may be wider than keys.
  kb::Values recur(kb::Builder& b, const kb::Recurrence& r, const kb::Sequence& seq) const {
    return mix(b, r, seq.cu, {});
  }

 private:
  Value matrix(kb::Builder& b, const char* name, int64_t out, int64_t in, int64_t blocks = 1) const {
    return b.param(name, b.normal({out, in}, std), {.blocks = blocks});
  }

  // SiLU(conv(W x)) [tokens, heads, head_dim]. The taps start as those of an ordinary convolution: U(-1/sqrt(taps),
  // 1/sqrt(taps)).
  Value stream(kb::Builder& b, Value x, const kb::Sequence& seq, const char* projection, const char* taps,
               const char* tail) const {
    const int64_t width = heads * head_dim;
    const double bound = 1 / std::sqrt(double(conv));
    const Value w = b.param(taps, b.uniform({width, conv}, -bound, bound), {.role = KB_OTHER, .dtype = KB_WIDE});
    Value last;  // the last conv - 1 inputs of the convolution; none with one tap
    if (b.stateful() && conv > 1) last = b.state(tail, KB_STATE_SEQUENCE, {conv - 1, width}, KB_COMPUTE);
    const kb::Values y = b.short_conv(b.linear(x, matrix(b, projection, width, x.dim(1), heads)), w, seq, last);
    if (last) b.write(last, y[1]);
    return b.reshape(b.silu(y[0]), {x.dim(0), heads, head_dim});
  }

  // Mamba-2: the inverse softplus of dt = exp(U(log 1e-3, log 1e-1)).
  Value dt_bias(kb::Builder& b) const {
    const Value dt = b.exp(b.uniform({heads * head_dim}, std::log(1e-3), std::log(1e-1)));
    return b.param("dt_bias", dt + b.log(1 - b.exp(-dt)), kb::wide_vector);
  }

  // -> o, state. q and k are normalised per head, eps inside the root.
  kb::Values mix(kb::Builder& b, const kb::Recurrence& r, Value cu, Value slot) const {
    if (!cu) kb::fail("input cu (borders of the documents) is missing");
    auto unit = [&](Value u) {
      u = b.wide(u);
      return b.narrow(u * b.rsqrt(b.sum(u * u, -1, true) + 1e-6));
    };
    const double scale = 1 / std::sqrt(double(r.q.dim(2)));
    const Value g = kb::log_decay(b, decay, b.wide(r.z)), beta = b.sigmoid(b.wide(r.beta));
    kb::Values in{unit(r.q), unit(r.k), r.v, g, beta, cu, r.s0};
    if (slot) in.push_back(slot);
    return b.emit_n("kda", in, {{"scale", scale}});
  }
};

}  // namespace kda

KITBASH_SCHEMA(kda::Kda, field("heads", &Self::heads, "heads").range(1, 512),
               field("head_dim", &Self::head_dim, "width of one head: keys, values, and the rank of the decay")
                   .range(1, 1024)
                   .was("head_size"),
               field("conv", &Self::conv, "taps of the short convolutions").range(1, 16),
               field("gate_rank", &Self::gate_rank, "rank of the output gate; 0: full").range(0, 65536),
               field("eps", &Self::eps, "of the output norm").range(0, 1),
               field("std", &Self::std, "standard deviation of the matrices at the start").range(0, 10),
               slot("decay", &Self::decay, "decay", "log decay of the state").flat())

KITBASH_PLUGIN("attention-kda", "0.1.0", "Apache-2.0", component<kda::Kda>("kda"), op<kda::KdaOp>(),
               op<kda::KdaBackwardOp>(), kernel<kda::Recurrent>(), kernel<kda::Chunk>(), kernel<kda::ChunkRescaled>(),
               kernel<kda::ChunkBackward>(), kernel<kda::ChunkRescaledBackward>())
