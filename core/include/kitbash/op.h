// op.h: for authors of ops and kernels. An op is a struct of attributes with infer, flops and gradient; a kernel names its op
// and a device and launches. The templates at the end turn both into the C tables of abi.h; every thunk catches.
#pragma once
#include <algorithm>
#include <memory>

#include "kitbash/builder.h"

namespace kb {

inline Shape shape_of(const kb_type& t) {
  Shape s;
  s.n = t.rank;
  for (int i = 0; i < t.rank; ++i) s.at[i] = t.shape[i];
  return s;
}
inline int64_t elements(const kb_type& t) { return shape_of(t).size(); }
inline const char* dtype_name(uint32_t d) {
  switch (d) {
    case KB_U8:
      return "u8";
    case KB_I32:
      return "i32";
    case KB_I64:
      return "i64";
    case KB_BF16:
      return "bf16";
    case KB_F32:
      return "f32";
    case KB_F64:
      return "f64";
    default:
      return "none";
  }
}
inline uint32_t wide_of(uint32_t d) { return d == KB_F64 ? KB_F64 : KB_F32; }

// ---- infer: input types -> output types -----------------------------------------------------------------------------------
struct Infer {
  kb_infer* c;
  uint32_t n_in() const { return c->n_in; }
  bool has(uint32_t i) const { return i < c->n_in && c->in[i].dtype != KB_NONE; }
  const kb_type& in(uint32_t i, const char* what) const {
    if (!has(i)) fail("input ", i, " (", what, ") is missing");
    return c->in[i];
  }
  const kb_type& in(uint32_t i, int rank, const char* what) const {  // checks presence and rank
    const kb_type& t = in(i, what);
    if (t.rank != rank) fail(what, " must have rank ", rank, " but got ", t.rank);
    return t;
  }
  void same(int64_t got, int64_t want, const char* what) const {
    if (got != want) fail(what, " must be ", want, " but got ", got);
  }
  void dtype(const kb_type& t, uint32_t want, const char* what) const {
    if (t.dtype != want) fail(what, " must be ", dtype_name(want), " but got ", dtype_name(t.dtype));
  }
  // Adds an output. `rows`: the input whose axis 0 the output shares, so that it shares its extent too.
  kb_type& out(const Shape& s, uint32_t dtype, const kb_type* rows = nullptr) {
    if (c->n_out == KB_MAX_OUT) fail("an op has at most ", KB_MAX_OUT, " outputs");
    kb_type& t = c->out[c->n_out++];
    t = kb_type{};
    t.dtype = dtype;
    t.rank = s.n;
    for (int i = 0; i < s.n; ++i) t.shape[i] = s.at[i];
    t.lo = -INFINITY, t.hi = INFINITY;
    if (rows) t.extent = rows->extent;
    return t;
  }
  kb_type& like(const kb_type& x) { return out(shape_of(x), x.dtype, &x); }
  void in_place(int out, int in) { c->alias[out] = in; }
};

// ---- gradient: emits ops -----------------------------------------------------------------------------------------------------
struct Grad {
  Builder& b;
  kb_node* c;
  Value in(uint32_t i) const { return {&b, i < c->n_in ? c->in[i] : 0}; }
  Value out(uint32_t i) const { return {&b, c->out[i]}; }
  Value up(uint32_t i) const { return {&b, c->up[i]}; }  // empty when nothing flows back through output i
  bool need(uint32_t i) const { return i < c->n_in && c->need[i]; }
  void down(uint32_t i, Value g) {
    if (need(i)) c->down[i] = g.id;
  }
  // For a broadcast operand: sums g to the shape of in(i).
  void down_to(uint32_t i, Value g) {
    if (!need(i)) return;
    const Shape want = in(i).shape(), got = g.shape();
    bool equal = want.n == got.n;
    for (int k = 0; equal && k < want.n; ++k) equal = want.at[k] == got.at[k];
    down(i, equal ? g : b.sum_to(g, want));
  }
};

// ---- a call of a kernel ------------------------------------------------------------------------------------------------------
struct Call {
  const kb_call* c;
  uint32_t n_in() const { return c->n_in; }
  uint32_t n_out() const { return c->n_out; }
  bool has(uint32_t i) const { return i < c->n_in && c->in[i].type.dtype != KB_NONE; }
  bool wanted(uint32_t o) const { return c->out[o].data != nullptr; }
  const kb_type& in(uint32_t i) const { return c->in[i].type; }
  const kb_type& out(uint32_t o) const { return c->out[o].type; }
  int64_t dim(uint32_t i, int d) const { return c->in[i].type.shape[d < 0 ? d + c->in[i].type.rank : d]; }
  // Rows of axis 0 in use; the bound while nothing runs (cost, workspace). On the CPU the host clears the rest afterwards.
  int64_t rows(const kb_type& t) const {
    return t.extent && c->extents ? c->extents[t.extent] : t.rank ? t.shape[0] : 1;
  }
  template <class T>
  const T* get(uint32_t i) const {
    return i < c->n_in ? static_cast<const T*>(c->in[i].data) : nullptr;
  }
  template <class T>
  T* put(uint32_t o) const {
    return static_cast<T*>(c->out[o].data);
  }  // NULL: not wanted
  bool adds(uint32_t o) const { return c->accumulate >> o & 1; }
  template <class T>
  T* workspace() const {
    return static_cast<T*>(c->workspace);
  }
  int32_t threads() const { return c->device && c->device->threads > 0 ? c->device->threads : 1; }
  // f(begin, end, thread) on pieces of [0, n) of at least `grain`.
  template <class F>
  void parallel(int64_t n, int64_t grain, F&& f) const {
    if (n <= 0) return;
    if (!c->device || !c->device->parallel || n <= grain) return f(int64_t(0), n, int32_t(0));
    c->device->parallel(
        c->device->team, n, grain,
        [](void* p, int64_t b, int64_t e, int32_t t) { (*static_cast<std::remove_reference_t<F>*>(p))(b, e, t); }, &f);
  }
};

// f.template operator()<T>() for float or double; CPU kernels have no other float types.
template <class F>
void floats(uint32_t dtype, F&& f) {
  if (dtype == KB_F64)
    f.template operator()<double>();
  else if (dtype == KB_F32)
    f.template operator()<float>();
  else
    fail("has no kernel for ", dtype_name(dtype), " on the cpu");
}

// ---- tables ---------------------------------------------------------------------------------------------------------------
template <class O>
const kb_op* op_table() {
  [[maybe_unused]] static const O defaults{};
  static const std::vector<kb_attr> attrs = [] {
    std::vector<kb_attr> a;
    std::apply([&](const auto&... f) { (a.push_back(default_attr(f.name, defaults.*f.member)), ...); }, op_attrs<O>());
    return a;
  }();
  static kb_op t{};
  t.struct_size = KB_STRUCT_SIZE(kb_op, traits);
  t.name = O::name;
  t.attr = attrs.data();
  t.n_attr = uint32_t(attrs.size());
  if constexpr (requires { O::traits; }) t.traits = O::traits;
  t.infer = [](kb_infer* i, kb_error* e) {
    return guard(O::name, e, [&] {
      i->n_out = 0;
      Infer s{i};
      read_attrs<O>(i->attr, i->n_attr).infer(s);
    });
  };
  t.cost = [](const kb_call* c, kb_cost* k, kb_error* e) {
    return guard(O::name, e, [&] {
      const O op = read_attrs<O>(c->attr, c->n_attr);
      k->flops = 0, k->bytes = -1;
      if constexpr (requires { op.flops(Call{c}); }) k->flops = op.flops(Call{c});
      if constexpr (requires { op.bytes(Call{c}); }) k->bytes = op.bytes(Call{c});
    });
  };
  if constexpr (requires(const O& o, Grad& g) { o.gradient(g); })
    t.gradient = [](const kb_host* h, kb_builder* b, kb_node* n, kb_error* e) {
      return guard(O::name, e, [&] {
        Builder bb(h, b);
        Grad g{bb, n};
        read_attrs<O>(n->attr, n->n_attr).gradient(g);
      });
    };
  return &t;
}

// A kernel K: `using Op`, name, device; launch(Call, Op) or, with `using Plan` and prepare(Call, Op) -> unique_ptr<Plan>,
// launch(Call, Op, Plan&). Optional: priority, arch_min, arch_max, accumulates, supports (fail() to decline), workspace.
template <class K>
const kb_kernel* kernel_table() {
  using O = typename K::Op;
  constexpr bool planned = requires { typename K::Plan; };
  static kb_kernel t{};
  t.struct_size = KB_STRUCT_SIZE(kb_kernel, release);
  t.op = O::name;
  t.name = K::name;
  t.device = K::device;
  if constexpr (requires { K::priority; }) t.priority = K::priority;
  if constexpr (requires { K::arch_min; }) t.arch_min = K::arch_min, t.arch_max = K::arch_max;
  if constexpr (requires { K::accumulates; }) t.accumulates = K::accumulates;
  if constexpr (requires(const Call& c, const O& o) { K::supports(c, o); })
    t.supports = [](const kb_call* c, kb_error* e) {
      return guard(K::name, e, [&] { K::supports(Call{c}, read_attrs<O>(c->attr, c->n_attr)); });
    };
  if constexpr (requires(const Call& c, const O& o) { K::workspace(c, o); })
    t.workspace = [](const kb_call* c) -> uint64_t {
      uint64_t n = 0;
      guard(K::name, nullptr, [&] { n = uint64_t(K::workspace(Call{c}, read_attrs<O>(c->attr, c->n_attr))); });
      return n;
    };
  if constexpr (planned) {
    t.prepare = [](const kb_call* c, void** plan, kb_error* e) {
      return guard(K::name, e, [&] { *plan = K::prepare(Call{c}, read_attrs<O>(c->attr, c->n_attr)).release(); });
    };
    t.release = [](void* plan) { delete static_cast<typename K::Plan*>(plan); };
  }
  t.launch = [](void* plan, const kb_call* c, kb_error* e) {
    return guard(K::name, e, [&] {
      const O op = read_attrs<O>(c->attr, c->n_attr);
      if constexpr (planned)
        K::launch(Call{c}, op, *static_cast<typename K::Plan*>(plan));
      else
        (void)plan, K::launch(Call{c}, op);
    });
  };
  return &t;
}

}  // namespace kb
