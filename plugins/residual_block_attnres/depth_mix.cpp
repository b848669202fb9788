// Shapes and gradient of depth_mix.
#include "depth_mix.h"

namespace {

// Checks sources, norm and query, the first n + 2 inputs.
void check_inputs(const kb::Infer& s, uint32_t n) {
  const kb_type& first = s.in(0, 2, "source 0");
  for (uint32_t i = 1; i < n; ++i) {
    const std::string what = kb::text("source ", i);
    const kb_type& t = s.in(i, 2, what.c_str());
    s.dtype(t, first.dtype, what.c_str());
    for (int k = 0; k < 2; ++k) s.same(t.shape[k], first.shape[k], what.c_str());
  }
  for (uint32_t k = 0; k < 2; ++k) {
    const char* what = k ? "query" : "norm";
    const kb_type& t = s.in(n + k, 1, what);
    s.dtype(t, kb::wide_of(first.dtype), what);
    s.same(t.shape[0], first.shape[1], what);
  }
}
uint32_t sources(const kb::Infer& s, uint32_t others) {
  const int64_t n = int64_t(s.n_in()) - others;
  if (n < 1 || n > DepthMix::kMaxSources)
    kb::fail("the number of sources must be in [1, ", DepthMix::kMaxSources, "] but got ", n,
             "; a larger block_layers gives fewer");
  return uint32_t(n);
}

}  // namespace

void DepthMix::infer(kb::Infer& s) const {
  const uint32_t n = sources(s, 2);
  check_inputs(s, n);
  const kb_type& v = s.in(0, "source 0");
  s.like(v);
  kb_type& p = s.out({v.shape[0], int64_t(n)}, kb::wide_of(v.dtype), &v);
  p.lo = 0, p.hi = 1;
}

void DepthMix::gradient(kb::Grad& g) const {
  if (g.up(1)) kb::fail("the weights of depth_mix have no gradient; detach them, or take the gradient through h");
  if (!g.up(0)) return;
  kb::Values in;
  for (uint32_t i = 0; i < g.c->n_in; ++i) in.push_back(g.in(i));
  in.push_back(g.up(0));
  const kb::Values down = g.b.emit_n(DepthMixBackward::name, in, {{"eps", eps}});
  for (uint32_t i = 0; i < g.c->n_in; ++i) g.down(i, down[i]);
}

void DepthMixBackward::infer(kb::Infer& s) const {
  const uint32_t n = sources(s, 3);
  check_inputs(s, n);
  const kb_type& v = s.in(0, "source 0");
  const kb_type& dh = s.in(n + 2, 2, "dh");
  s.dtype(dh, v.dtype, "dh");
  for (int k = 0; k < 2; ++k) s.same(dh.shape[k], v.shape[k], "dh");
  for (uint32_t i = 0; i < n; ++i) s.like(s.in(i, "source"));
  s.like(s.in(n, "norm"));
  s.like(s.in(n + 1, "query"));
}
