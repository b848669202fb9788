// Muon: momentum, orthogonalised by Newton-Schulz on each block (a head, an expert) alone. What is no matrix goes to
// `others`.
#include "kitbash/plugin.h"
using kb::Value;

struct Muon : kb::Optimizer<Muon> {
  double momentum = 0.95, decay = 0.1, scale = 0.2;
  int64_t steps = 5;
  kb::Slot others = "adamw";

  kb::Values step(kb::Builder& b, const kb::Target& p) const {
    const kb::Shape s = p.w.shape();
    if (p.role != KB_MATRIX || s.n < 2) return kb::leave_to(b, others, p);
    // [out, in] in blocks of rows, or [experts, out, in] in blocks of experts.
    const int64_t blocks = std::max<int64_t>(1, p.blocks), cols = s[-1], rows = s.size() / cols / blocks;
    if (rows * cols * blocks != s.size())
      kb::fail("a parameter of ", s.size() / cols, " rows cannot be cut into ", blocks, " equal blocks");
    const Value before = b.state("momentum", KB_STATE_OPTIMIZER, s), m = momentum * before + p.g;
    b.write(before, m);
    const Value u = b.reshape(momentum * m + p.g, {blocks, rows, cols});  // Nesterov
    const Value x = b.reshape(scale * std::sqrt(double(std::max(rows, cols))) * orthogonal(b, u), s);
    return {p.w - p.lr * (p.flags & KB_NO_DECAY ? x : x + decay * p.w)};
  }

 private:
  // u [blocks, rows, cols] -> each block with singular values near 1; works on the smaller Gram matrix.
  Value orthogonal(kb::Builder& b, Value u) const {
    const bool flip = u.dim(1) > u.dim(2);
    Value x = flip ? b.permute(u, {0, 2, 1}) : u;
    x = x * b.rsqrt(b.sum(b.sum(x * x, 2, true), 1, true) + 1e-30);  // an expert without tokens stays 0
    for (int64_t i = 0; i < steps; ++i) {
      const Value a = b.matmul(x, x, false, true);
      x = 3.4445 * x + b.matmul(-4.7750 * a + 2.0315 * b.matmul(a, a), x);
    }
    return flip ? b.permute(x, {0, 2, 1}) : x;
  }
};
KITBASH_SCHEMA(Muon, field("momentum", &Self::momentum, "Nesterov momentum").range(0, 1),
               field("decay", &Self::decay, "decoupled weight decay").range(0, 10),
               field("scale", &Self::scale, "of the update, times sqrt(max(rows, columns)) of a block").range(0, 10),
               field("steps", &Self::steps, "Newton-Schulz steps").range(1, 20),
               slot("others", &Self::others, "optimizer", "for embeddings and what is no matrix").flat())

KITBASH_PLUGIN("optimizer-muon", "0.1.0", "Apache-2.0", component<Muon>("muon"))
