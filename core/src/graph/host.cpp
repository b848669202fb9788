// host.cpp: the host's side of kb_host. Every function guards: an error becomes a code and a sentence with its place.
#include <cstdio>
#include <cstring>

#include "graph/graph.h"
#include "kitbash/op.h"

namespace kitbash {

namespace {

Graph& graph(kb_builder* b) { return *reinterpret_cast<Graph*>(b); }
std::string join(const std::string& a, const std::string& b) { return b.empty() ? a : a.empty() ? b : a + "." + b; }

std::string place(Graph& g) {
  const std::string& w = g.wheres[g.frames.back().where];
  return "[" + (w.empty() ? g.name : w) + "] ";
}

// Runs f and puts the place in front of what it throws, unless a place is there already.
template <class F>
int placed(kb_builder* b, const char* what, kb_error* e, F&& f) {
  return kb::guard(what, e, [&] {
    try {
      f(graph(b));
    } catch (const kb::Error& x) {
      throw x.what()[0] == '[' ? x : kb::Error(place(graph(b)) + x.what(), x.code);
    }
  });
}

// A random op draws from (recipe seed, full parameter name, which draw of that parameter).
int64_t hash_seed(uint64_t seed, const std::string& name, int draw) {
  uint64_t h = 1469598103934665603ull ^ (seed * 0x9E3779B97F4A7C15ull);
  for (unsigned char c : name) h = (h ^ c) * 1099511628211ull;
  h = (h ^ uint64_t(draw)) * 1099511628211ull;
  h ^= h >> 29;
  return int64_t(h >> 1);
}

std::vector<kb_attr> complete_attrs(Graph& g, const OpDef& op, const kb_attr* attr, uint32_t n_attr) {
  std::vector<kb_attr> all(op.table->attr, op.table->attr + op.table->n_attr);
  for (uint32_t i = 0; i < n_attr; ++i) {
    auto a = std::find_if(all.begin(), all.end(), [&](const kb_attr& x) { return !std::strcmp(x.name, attr[i].name); });
    if (a == all.end()) kb::fail("has no attribute '", attr[i].name, "'");
    if (a->kind == KB_FLOAT && attr[i].kind == KB_INT)
      a->v.f = double(attr[i].v.i);
    else if (a->kind != attr[i].kind)
      kb::fail("attribute '", attr[i].name, "' has another type");
    else
      a->count = attr[i].count, a->v = attr[i].v;
  }
  for (kb_attr& a : all) {
    if (!std::strcmp(a.name, "dtype") && a.kind == KB_INT) a.v.i = g.resolve(uint32_t(a.v.i));
    if (!std::strcmp(a.name, "tile") && a.kind == KB_INT && a.v.i == 0) a.v.i = g.options.tile;
  }
  return all;
}

// Ops that would return their input unchanged are left out: in f32 every wide() and narrow() is one.
bool is_identity(const std::string& op, const std::vector<kb_attr>& attr, const kb_type& in, const kb_type& out) {
  if (op == "cast") return in.dtype == out.dtype;
  if (op == "reshape" || op == "broadcast" || op == "sum_to") return same_shape(in, out);
  if (op == "affine") return attr[0].v.f == 1 && attr[1].v.f == 0;
  return false;
}

// Its bytes must be countable; an axis of none does not excuse the others.
void check_size(const kb_type& t, uint32_t k) {
  int64_t bytes = 8;
  for (int d = 0; d < t.rank; ++d) {
    if (t.shape[d] < 0) kb::fail("output ", k, " has a negative size");
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(1, t.shape[d]), &bytes))
      kb::fail("output ", k, " must have fewer than 2^60 elements but is ", type_text(t));
  }
}

int h_emit(kb_builder* b, const char* op_name, const kb_value* in, uint32_t n_in, const kb_attr* attr, uint32_t n_attr,
           kb_value* out, uint32_t* n_out, kb_error* e) {
  return placed(b, op_name, e, [&](Graph& g) {
    try {
      const OpDef* op = g.registry.op(op_name);
      if (!op) kb::fail("there is no such op");
      if (n_in > KB_MAX_IN) kb::fail("gets ", n_in, " inputs; the limit is ", KB_MAX_IN);
      while (n_in && !in[n_in - 1]) --n_in;  // absent inputs at the end
      std::vector<kb_type> types_in(n_in), types_out(KB_MAX_OUT);
      for (uint32_t i = 0; i < n_in; ++i) {
        if (in[i] >= g.values.size()) kb::fail("value ", in[i], " does not belong to this graph");
        if (in[i]) types_in[i] = g.type(in[i]);
      }
      const std::vector<kb_attr> attrs = complete_attrs(g, *op, attr, n_attr);
      kb_infer s{KB_STRUCT_SIZE(kb_infer, alias),
                 attrs.data(),
                 uint32_t(attrs.size()),
                 types_in.data(),
                 n_in,
                 types_out.data(),
                 0,
                 {}};
      std::fill(s.alias, s.alias + KB_MAX_OUT, -1);
      kb_error ee{};
      if (int rc = op->table->infer(&s, &ee)) throw kb::Error(ee.message, uint32_t(rc));
      if (s.n_out > *n_out) kb::fail("gives ", s.n_out, " values; there is room for ", *n_out);
      if (s.n_out == 1 && n_in == 1 && is_identity(op->name, attrs, types_in[0], types_out[0])) {
        out[0] = in[0], *n_out = 1;
        return;
      }
      for (uint32_t k = 0; k < s.n_out; ++k) check_size(types_out[k], k);
      Node n;
      n.op = op;
      n.phase = g.phase;
      n.segment = g.segment;
      n.where = g.frames.back().where;
      n.attr = g.keep_attrs(attrs.data(), uint32_t(attrs.size()));
      n.n_attr = uint32_t(attrs.size());
      n.in.assign(in, in + n_in);
      for (uint32_t k = 0; k < s.n_out; ++k)
        if (s.alias[k] >= 0) {
          n.alias.resize(s.n_out, -1);
          n.alias[k] = s.alias[k];
        }
      types_out.resize(s.n_out);
      const Node& made = g.nodes[g.append(std::move(n), types_out)];
      std::copy(made.out.begin(), made.out.end(), out);
      *n_out = s.n_out;
    } catch (const kb::Error& x) {
      std::string operands;
      for (uint32_t i = 0; i < n_in; ++i)
        operands +=
            (i ? ", " : "") + (in[i] && in[i] < g.values.size() ? type_text(g.type(in[i])) : std::string("none"));
      throw kb::Error(place(g) + "op " + op_name + "(" + operands + "): " + x.what(), x.code);
    }
  });
}

int h_type(kb_builder* b, kb_value v, kb_type* t, kb_error* e) {
  return placed(b, "type", e, [&](Graph& g) {
    if (!v || v >= g.values.size()) kb::fail("value ", v, " does not exist");
    *t = g.type(v);
  });
}

void seed_random_nodes(Graph& g, ValueId init, const std::string& full) {
  int draw = 0;
  std::vector<ValueId> open{init};
  std::set<NodeId> seen;
  while (!open.empty()) {
    const NodeId id = g.values[open.back()].maker;
    open.pop_back();
    if (!seen.insert(id).second) continue;
    Node& n = g.nodes[id];
    for (ValueId v : n.in)
      if (v) open.push_back(v);
    if (!(n.traits() & KB_RANDOM)) continue;
    std::vector<kb_attr> a(n.attr, n.attr + n.n_attr);
    for (kb_attr& x : a)
      if (!std::strcmp(x.name, "seed") && x.v.i == 0) {
        x.v.i = hash_seed(g.options.seed, full, draw++);
        n.attr = g.keep_attrs(a.data(), n.n_attr);
      }
  }
}

int h_param(kb_builder* b, const kb_param* p, kb_value* out, kb_error* e) {
  return placed(b, "param", e, [&](Graph& g) {
    const std::string full = join(g.frames.back().path, p->name);
    if (!p->init || p->init >= g.values.size()) kb::fail("parameter '", full, "' has no initial value");
    if (g.init.count(full)) kb::fail("parameter '", full, "' is declared twice");
    if (!kb::elements(g.type(p->init)))
      kb::fail("parameter '", full, "' must have elements but is ", type_text(g.type(p->init)));
    StoreEntry entry;
    entry.name = full;
    entry.type = g.type(p->init);
    entry.type.dtype = g.resolve(p->dtype);
    entry.type.lo = -INFINITY, entry.type.hi = INFINITY, entry.type.extent = 0;
    entry.life = Life::param;
    entry.role = p->role, entry.flags = p->flags;
    entry.blocks = std::max<int64_t>(1, p->blocks);
    entry.active = KB_HAS(kb_param, p, active) ? p->active : 0;
    g.store.declare(entry);
    seed_random_nodes(g, p->init, full);
    g.init[full] = p->init;
    *out = g.read(full);
  });
}

int h_state(kb_builder* b, const kb_state* s, kb_value* out, kb_error* e) {
  return placed(b, "state", e, [&](Graph& g) {
    const std::string full = join(g.frames.back().path, s->name);
    if (s->life > KB_STATE_TOKEN) kb::fail("state '", full, "' has no known life (", s->life, ")");
    const bool serving = g.mode == KB_PREFILL || g.mode == KB_DECODE;
    const bool of_serving = s->life == KB_STATE_SEQUENCE || s->life == KB_STATE_TOKEN;
    if (of_serving && !serving) kb::fail("state '", full, "' belongs to prefill and decode; this graph has none");
    if (s->life == KB_STATE_STEP && g.mode != KB_TRAIN && g.mode != KB_UPDATE)
      kb::fail("state '", full, "' counts training steps; it does not exist here");
    if (s->life == KB_STATE_OPTIMIZER && g.mode != KB_STEP) kb::fail("state '", full, "' belongs to the optimiser");
    std::vector<int64_t> shape(s->shape, s->shape + s->rank);
    if (s->life == KB_STATE_TOKEN) shape.insert(shape.begin(), g.options.capacity);
    if (of_serving) shape.insert(shape.begin(), g.options.slots);
    if (shape.size() > KB_MAX_RANK)
      kb::fail("state '", full, "' has rank ", shape.size(), "; the limit is ", KB_MAX_RANK);
    StoreEntry entry;
    entry.name = full;
    entry.type = make_type(g.resolve(s->dtype), shape);
    entry.fill = s->fill;
    entry.life = s->life == KB_STATE_MODEL       ? Life::model
                 : s->life == KB_STATE_STEP      ? Life::step
                 : s->life == KB_STATE_OPTIMIZER ? Life::optimizer
                 : s->life == KB_STATE_SEQUENCE  ? Life::sequence
                                                 : Life::token;
    g.store.declare(entry);
    *out = g.read(full);
  });
}

int h_find(kb_builder* b, const char* name, kb_value* out, kb_error* e) {
  return placed(b, "find", e, [&](Graph& g) {
    const std::string full = join(g.frames.back().path, name);
    *out = g.store.find(full) ? g.read(full) : 0;
  });
}

int h_write(kb_builder* b, kb_value target, kb_value now, kb_error* e) {
  return placed(b, "write", e, [&](Graph& g) { g.write(target, now); });
}

int h_call(kb_builder* b, const char* slot, uint32_t verb, const kb_value* in, uint32_t n_in, const kb_attr* attr,
           uint32_t n_attr, kb_value* out, uint32_t* n_out, kb_error* e) {
  return placed(b, "call", e, [&](Graph& g) {
    const Graph::Frame f = g.frames.back();
    if (!f.instance) kb::fail("slot '", slot, "' is called outside a component");
    auto child = f.instance->children.find(slot);
    if (child == f.instance->children.end()) kb::fail("slot '", slot, "' is empty");
    const FieldInfo* field = f.instance->config->info->field(slot);
    kb::Builder host = g.builder();
    kb::Values values;
    for (uint32_t i = 0; i < n_in; ++i) values.push_back({&host, in[i]});
    const std::string path = field && field->flat ? f.path : join(f.path, slot);
    const kb::Values got = g.build(*child->second, path, verb, values, attr, n_attr);
    if (got.size() > *n_out) kb::fail("slot '", slot, "' returns ", got.size(), " values; there is room for ", *n_out);
    for (size_t k = 0; k < got.size(); ++k) out[k] = got[k].id;
    *n_out = uint32_t(got.size());
  });
}

int h_publish(kb_builder* b, uint32_t what, const char* name, kb_value v, kb_error* e) {
  return placed(b, "publish", e, [&](Graph& g) {
    const std::string full = join(g.frames.back().path, name);
    if (!v || v >= g.values.size()) kb::fail("'", full, "' is published without a value");
    if (what == KB_REPORT) {
      g.reports[full] = v;
      return;
    }
    if (kb::elements(g.type(v)) != 1) kb::fail("the loss '", full, "' must be a scalar but got ", type_text(g.type(v)));
    g.losses.push_back(v);
    g.reports["loss." + full] = v;
  });
}

void h_log(uint32_t level, const char* text) { std::fprintf(stderr, "%s%s\n", level >= 2 ? "warning: " : "", text); }

}  // namespace

const kb_host& host_table() {
  static const kb_host t{KB_STRUCT_SIZE(kb_host, log),
                         KB_ABI_MINOR,
                         h_emit,
                         h_type,
                         h_param,
                         h_state,
                         h_find,
                         h_write,
                         h_call,
                         h_publish,
                         h_log};
  return t;
}

}  // namespace kitbash
