// Stable latent mixture of experts: the router reads the full width, the experts work in a latent, the sum is
// normalised before it is projected up, and a shared expert works on the full width.
#include "kitbash/plugin.h"
using kb::Value;

struct LatentMoe : kb::Ffn<LatentMoe> {
  int64_t experts = 16, active = 2, latent = 64, width = 96, shared = 96;
  double scale = 1, eps = 1e-5, std = 0.02;
  kb::Slot router = "quantile", activation = "situ-glu";

  void check() const {
    if (active >= experts)
      kb::fail("active must be below experts but got active = ", active, ", experts = ", experts,
               "; lower active, or use ffn.dense");
  }

  Value build(kb::Builder& b, Value x, Value document) const {
    const int64_t tokens = x.dim(0), d = x.dim(1), inner = latent ? latent : d;
    const kb::Routed r = kb::route(b, router, x, document, experts, active);
    const kb::Values sorted = b.expert_sort(r.ids, experts);
    const Value source = sorted[0], offsets = sorted[1];  // [rows] into [tokens * active], [experts + 1]
    const Value z =
        b.dispatch(latent ? b.linear(x, matrix(b, "down", latent, d)) : x, source, active);  // [rows, inner]

    auto grouped = [&](Value rows, const char* name, int64_t out, int64_t in) {
      const Value w = b.param(name, b.normal({experts, out, in}, std),
                              {.flags = KB_PER_EXPERT, .blocks = experts, .active = active});
      return b.grouped_linear(rows, w, offsets, tokens * active);
    };
    const Value h = kb::activate(b, activation, grouped(z, "w1", width, inner), grouped(z, "w3", width, inner));
    // The weight multiplies before w2: its gradient is then <h, w2^T dy>, and no expert output is kept for it.
    const Value weights = scale == 1 ? r.weights : scale * r.weights;
    const Value p = b.dispatch(b.reshape(weights, {tokens * active, 1}), source, 1);  // [rows, 1], 0 for padding
    Value y = b.combine(grouped(b.narrow(h * p), "w2", inner, width), source, tokens, active);  // [tokens, inner]
    if (latent) {
      y = b.rms_norm(y, b.param("norm", b.ones({latent}), kb::wide_vector), eps);
      y = b.linear(y, matrix(b, "up", d, latent));
    }
    if (!shared) return y;
    const Value gate = b.linear(x, matrix(b, "shared_w1", shared, d)),
                up = b.linear(x, matrix(b, "shared_w3", shared, d));
    return y + b.linear(kb::activate(b, activation, gate, up), matrix(b, "shared_w2", d, shared));
  }

 private:
  Value matrix(kb::Builder& b, const char* name, int64_t out, int64_t in) const {
    return b.param(name, b.normal({out, in}, std));
  }
};
KITBASH_SCHEMA(LatentMoe, field("experts", &Self::experts, "experts").range(2, 4096),
               field("active", &Self::active, "experts a token").range(1, 64),
               field("latent", &Self::latent,
                     "width in which the experts work; 0: the full width, without down, norm, up")
                   .range(0, 65536),
               field("width", &Self::width, "hidden width of an expert").range(1, 65536),
               field("shared", &Self::shared, "hidden width of the shared expert; 0: none").range(0, 1 << 20),
               field("scale", &Self::scale, "factor on the weights of the router; inert before the norm").range(0, 100),
               field("eps", &Self::eps, "of the latent norm").range(0, 1),
               field("std", &Self::std, "standard deviation at the start").range(0, 10),
               slot("router", &Self::router, "router", "chooses the experts"),
               slot("activation", &Self::activation, "activation", "of the experts and the shared expert"))

KITBASH_PLUGIN("ffn-latent-moe", "0.1.0", "Apache-2.0", component<LatentMoe>("latent-moe"))
