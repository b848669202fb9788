// builder.h: C++ on top of the host's table: values with operators, and one method for each base op. Header only; a failed
// call throws kb::Error inside the plugin, and the thunk that the host called turns it into a kb_error.
#pragma once
#include <cmath>
#include <string>

#include "kitbash/attrs.h"

namespace kb {

class Builder;
struct Value {
  Builder* b = nullptr;
  kb_value id = 0;
  explicit operator bool() const { return id != 0; }
  kb_type type() const;
  Shape shape() const;
  int64_t dim(int i) const;  // negative counts from the end; refuses an axis that is not there
};
using Values = std::vector<Value>;

// How tokens are laid out; kinds/sequence.h explains every field. Absent ones are empty values.
struct Sequence {
  Value cu, position, document, past, slot;
};

struct ParamOptions {
  uint32_t role = KB_MATRIX, flags = 0, dtype = KB_COMPUTE;
  int64_t blocks = 1, active = 0;
};
inline constexpr ParamOptions wide_vector{KB_VECTOR, KB_NO_DECAY, KB_WIDE, 1, 0};  // norms, biases, gains

class Builder {
 public:
  Builder(const kb_host* h, kb_builder* b, kb_build* c = nullptr) : host_(h), b_(b), call_(c) {}

  // ---- the request
  bool training() const { return call_->mode == KB_TRAIN; }  // STEP states exist
  bool stateful() const {
    return call_->mode == KB_PREFILL || call_->mode == KB_DECODE;
  }  // SEQUENCE, TOKEN states exist
  bool decoding() const { return call_->mode == KB_DECODE; }
  uint32_t verb() const { return call_->verb; }
  Value in(uint32_t i) { return i < call_->n_in ? Value{this, call_->in[i]} : Value{}; }
  Value required(uint32_t i, const char* what) {
    Value v = in(i);
    if (!v) fail("input ", i, " (", what, ") is missing");
    return v;
  }
  uint32_t n_in() const { return call_->n_in; }
  Values inputs(uint32_t from = 0) {
    Values v;
    for (uint32_t i = from; i < call_->n_in; ++i) v.push_back(in(i));
    return v;
  }
  Sequence sequence(uint32_t from) { return {in(from), in(from + 1), in(from + 2), in(from + 3), in(from + 4)}; }
  const kb_attr* given(const char* k) const {
    for (uint32_t i = 0; i < call_->n_attr; ++i)
      if (!std::strcmp(call_->attr[i].name, k)) return &call_->attr[i];
    return nullptr;
  }
  int64_t integer(const char* k) const { return attribute(k, KB_INT)->v.i; }
  double number(const char* k) const { return attribute(k, KB_FLOAT)->v.f; }
  const char* string(const char* k) const { return attribute(k, KB_TEXT)->v.s; }
  void result(const Values& v) {
    if (v.size() > call_->n_out) fail("returns ", v.size(), " values; there is room for ", call_->n_out);
    for (size_t i = 0; i < v.size(); ++i) call_->out[i] = v[i].id;
    call_->n_out = uint32_t(v.size());
  }

  // ---- host functions
  Values emit_n(const char* op, const Values& in, Attrs attrs = {}) {
    std::vector<kb_value> i;
    for (const Value& v : in) i.push_back(v.id);
    kb_value o[KB_MAX_OUT];
    uint32_t n = KB_MAX_OUT;
    const std::vector<kb_attr> a(attrs.begin(), attrs.end());
    kb_error e{};
    check(host_->emit(b_, op, i.data(), uint32_t(i.size()), a.data(), uint32_t(a.size()), o, &n, &e), e);
    Values r;
    for (uint32_t k = 0; k < n; ++k) r.push_back({this, o[k]});
    return r;
  }
  Value emit(const char* op, const Values& in, Attrs attrs = {}) { return emit_n(op, in, attrs)[0]; }
  kb_type type(kb_value v) {
    kb_type t{};
    kb_error e{};
    check(host_->type(b_, v, &t, &e), e);
    return t;
  }
  Value param(const char* name, Value init, ParamOptions o = {}) {
    const kb_param p{KB_STRUCT_SIZE(kb_param, active), o.role, o.flags, o.dtype, name, init.id, o.blocks, o.active};
    Value v{this, 0};
    kb_error e{};
    check(host_->param(b_, &p, &v.id, &e), e);
    return v;
  }
  Value state(const char* name, kb_life life, const Shape& s, kb_dtype t = KB_WIDE, double fill = 0) {
    const kb_state d{KB_STRUCT_SIZE(kb_state, fill), uint32_t(life), uint32_t(t), s.n, name, s.at, fill};
    Value v{this, 0};
    kb_error e{};
    check(host_->state(b_, &d, &v.id, &e), e);
    return v;
  }
  Value find(const char* name) {
    Value v{this, 0};
    kb_error e{};
    check(host_->find(b_, name, &v.id, &e), e);
    return v;
  }
  void write(Value target, Value now) {
    kb_error e{};
    check(host_->write(b_, target.id, now.id, &e), e);
  }
  Values call(const Slot& s, uint32_t verb, const Values& in, Attrs attrs = {}) {
    std::vector<kb_value> i, o(KB_MAX_IN);
    for (const Value& v : in) i.push_back(v.id);
    uint32_t n = KB_MAX_IN;
    const std::vector<kb_attr> a(attrs.begin(), attrs.end());
    kb_error e{};
    check(host_->call(b_, s.slot, verb, i.data(), uint32_t(i.size()), a.data(), uint32_t(a.size()), o.data(), &n, &e),
          e);
    Values r;
    for (uint32_t k = 0; k < n; ++k) r.push_back({this, o[k]});
    return r;
  }
  void report(const char* name, Value v) { publish(KB_REPORT, name, v); }
  void loss(const char* name, Value sum) { publish(KB_LOSS, name, sum); }

  // ---- base ops (ops.h). Pointwise ops broadcast like NumPy and compute in the wider of their float types.
  Value affine(Value x, double mul, double add) { return emit("affine", {x}, {{"mul", mul}, {"add", add}}); }
  Value exp(Value x) { return emit("exp", {x}); }
  Value log(Value x) { return emit("log", {x}); }
  Value sigmoid(Value x) { return emit("sigmoid", {x}); }
  Value tanh(Value x) { return emit("tanh", {x}); }
  Value softplus(Value x) { return emit("softplus", {x}); }
  Value rsqrt(Value x) { return emit("rsqrt", {x}); }
  Value sqrt(Value x) { return emit("sqrt", {x}); }
  Value sin(Value x) { return emit("sin", {x}); }
  Value cos(Value x) { return emit("cos", {x}); }
  Value erf(Value x) { return emit("erf", {x}); }
  Value floor(Value x) { return emit("floor", {x}); }
  Value is_finite(Value x) { return emit("is_finite", {x}); }
  Value minimum(Value a, Value c) { return emit("minimum", {a, c}); }
  Value maximum(Value a, Value c) { return emit("maximum", {a, c}); }
  Value less(Value a, Value c) { return emit("less", {a, c}); }
  Value silu(Value x) { return emit("mul", {x, sigmoid(x)}); }
  Value cast(Value x, kb_dtype t) { return emit("cast", {x}, {{"dtype", int64_t(t)}}); }
  Value wide(Value x) { return cast(x, KB_WIDE); }       // start of an fp32 island
  Value narrow(Value x) { return cast(x, KB_COMPUTE); }  // its end
  Value detach(Value x) { return emit("detach", {x}); }
  Value sum(Value x, int64_t axis, bool keep = false) { return emit("sum", {x}, {{"axis", axis}, {"keep", keep}}); }
  Value mean(Value x, int64_t axis, bool keep = false) {
    return affine(sum(x, axis, keep), 1.0 / double(x.dim(int(axis))), 0);
  }
  Value amax(Value x, int64_t axis, bool keep = false) { return emit("amax", {x}, {{"axis", axis}, {"keep", keep}}); }
  Value sum_to(Value x, const Shape& s) { return emit("sum_to", {x}, {{"shape", s}}); }
  Value square_sum(Value x) { return emit("square_sum", {x}); }
  Value square_sum(const Values& x) { return emit("square_sum", x); }  // at most KB_MAX_IN
  Value softmax(Value x) { return emit("softmax", {x}); }              // last axis
  Value matmul(Value a, Value c, bool ta = false, bool tb = false) {
    return emit("matmul", {a, c}, {{"ta", ta}, {"tb", tb}});
  }
  Value linear(Value x, Value w) { return matmul(x, w, false, true); }  // x [.., in], w [out, in] -> [.., out]
  Value rms_norm(Value x, Value w, double eps) { return emit("rms_norm", {x, w}, {{"eps", eps}}); }
  Value reshape(Value x, const Shape& s) { return emit("reshape", {x}, {{"shape", s}}); }  // one -1 allowed
  Value permute(Value x, const Shape& axes) { return emit("permute", {x}, {{"axes", axes}}); }
  Value slice(Value x, int64_t axis, int64_t begin, int64_t end) {
    return emit("slice", {x}, {{"axis", axis}, {"begin", begin}, {"end", end}});
  }
  Value concat(const Values& x, int64_t axis) { return emit("concat", x, {{"axis", axis}}); }
  Value broadcast(Value x, const Shape& s) { return emit("broadcast", {x}, {{"shape", s}}); }
  Value gather(Value x, Value rows) { return emit("gather", {x, rows}); }  // row -1 reads zeros
  Value scatter_add(Value x, Value rows, int64_t n) { return emit("scatter_add", {x, rows}, {{"rows", n}}); }
  Value take(Value x, Value ids) { return emit("take", {x, ids}); }  // x [n, m], ids [n, k] -> [n, k]
  Value fill(const Shape& s, double v, kb_dtype t = KB_WIDE) {
    return emit("fill", {}, {{"shape", s}, {"value", v}, {"dtype", int64_t(t)}});
  }
  Value zeros(const Shape& s) { return fill(s, 0); }
  Value ones(const Shape& s) { return fill(s, 1); }
  Value vector(const std::vector<double>& v) { return emit("vector", {}, {{"values", v}}); }
  Value iota(int64_t n) { return emit("iota", {}, {{"n", n}}); }  // i32
  Value normal(const Shape& s, double std) { return emit("normal", {}, {{"shape", s}, {"std", std}}); }
  Value uniform(const Shape& s, double lo, double hi) {
    return emit("uniform", {}, {{"shape", s}, {"lo", lo}, {"hi", hi}});
  }
  Values topk(Value x, int64_t k) { return emit_n("topk", {x}, {{"k", k}}); }  // values, ids; ties: lower id
  Value all_reduce(Value x, const char* how, const char* over = "tokens") {
    return emit("all_reduce", {x}, {{"how", how}, {"over", over}});
  }
  // Sequences. conv: x [tokens, c], w [c, taps]; with a state [slots, taps - 1, c] it is read and returned.
  Values short_conv(Value x, Value w, const Sequence& s, Value state = {}) {
    return emit_n("short_conv", state ? Values{x, w, s.cu, state, s.slot} : Values{x, w, s.cu});
  }
  Values attention(Value q, Value k, Value v, Value cu, double scale, bool causal) {  // -> o, lse, peak
    return emit_n("attention", {q, k, v, cu}, {{"scale", scale}, {"causal", causal}});
  }
  Value cache_append(Value cache, Value rows, const Sequence& s) {
    return emit("cache_append", {cache, rows, s.cu, s.past, s.slot});
  }
  Value attention_cached(Value q, Value k, Value v, const Sequence& s, double scale) {
    return emit("attention_cached", {q, k, v, s.cu, s.past, s.slot}, {{"scale", scale}});
  }
  // Experts: source [rows] indexes ids flat, -1 is padding; offsets [experts + 1].
  Values expert_sort(Value ids, int64_t experts) { return emit_n("expert_sort", {ids}, {{"experts", experts}}); }
  Value dispatch(Value x, Value source, int64_t active) { return emit("dispatch", {x, source}, {{"active", active}}); }
  Value combine(Value rows, Value source, int64_t tokens, int64_t active) {
    return emit("combine", {rows, source}, {{"tokens", tokens}, {"active", active}});
  }
  Value grouped_linear(Value rows, Value w, Value offsets, int64_t used, bool tw = true) {
    return emit("grouped_linear", {rows, w, offsets}, {{"used", used}, {"tw", tw}});
  }
  Value grouped_outer(Value a, Value c, Value offsets, int64_t experts, int64_t used) {
    return emit("grouped_outer", {a, c, offsets}, {{"experts", experts}, {"used", used}});
  }
  Values cross_entropy(Value logits, Value target, Value weight) {  // -> sum of weighted losses [], lse [n]
    return emit_n("cross_entropy", {logits, target, weight});
  }

 private:
  static void check(int rc, const kb_error& e) {
    if (rc) throw Error(e.message, e.code);
  }
  const kb_attr* attribute(const char* k, uint32_t kind) const {
    const kb_attr* a = given(k);
    if (!a || a->kind != kind) fail("the caller did not give the attribute '", k, "'");
    return a;
  }
  void publish(uint32_t what, const char* name, Value v) {
    kb_error e{};
    check(host_->publish(b_, what, name, v.id, &e), e);
  }
  const kb_host* host_;
  kb_builder* b_;
  kb_build* call_;
};

inline kb_type Value::type() const { return b->type(id); }
inline Shape Value::shape() const {
  const kb_type t = type();
  Shape s;
  s.n = t.rank;
  for (int i = 0; i < t.rank; ++i) s.at[i] = t.shape[i];
  return s;
}
inline int64_t Value::dim(int i) const {
  const Shape s = shape();
  if (i < -s.n || i >= s.n) fail("a value must have the axis ", i, " to ask its size but has ", s.n, " axes");
  return s[i];
}
inline Value operator+(Value a, Value c) { return a.b->emit("add", {a, c}); }
inline Value operator-(Value a, Value c) { return a.b->emit("sub", {a, c}); }
inline Value operator*(Value a, Value c) { return a.b->emit("mul", {a, c}); }
inline Value operator/(Value a, Value c) { return a.b->emit("div", {a, c}); }
inline Value operator*(double m, Value x) { return x.b->affine(x, m, 0); }
inline Value operator*(Value x, double m) { return m * x; }
inline Value operator+(Value x, double a) { return x.b->affine(x, 1, a); }
inline Value operator-(Value x, double a) { return x.b->affine(x, 1, -a); }
inline Value operator-(double a, Value x) { return x.b->affine(x, -1, a); }
inline Value operator-(Value x) { return x.b->affine(x, -1, 0); }

}  // namespace kb
