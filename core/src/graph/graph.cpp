#include "graph/graph.h"

#include <cstring>

#include "kitbash/op.h"

namespace kitbash {

Graph::Graph(std::string n, const GraphOptions& o, Registry& r, Store& s)
    : name(std::move(n)), options(o), registry(r), store(s), values(1), mode(o.mode) {
  frames.push_back({nullptr, "", 0});
  nodes.reserve(4096);
  values.reserve(4096);
}

kb::Builder Graph::builder() { return kb::Builder(&host_table(), reinterpret_cast<kb_builder*>(this)); }

NodeId Graph::append(Node n, const std::vector<kb_type>& out_types) {
  const auto id = NodeId(nodes.size());
  n.out.clear();
  for (const kb_type& t : out_types) {
    n.out.push_back(ValueId(values.size()));
    values.push_back({t, id, uint32_t(n.out.size() - 1)});
  }
  nodes.push_back(std::move(n));
  return id;
}

ValueId Graph::input(const std::string& input_name, const kb_type& t) {
  if (inputs.count(input_name)) kb::fail("[", name, "] input '", input_name, "' exists already");
  Node n;
  n.kind = NodeKind::input;
  n.name = input_name;
  return inputs[input_name] = nodes[append(std::move(n), {t})].out[0];
}

ValueId Graph::read(const std::string& entry) {
  if (auto w = write_index_.find(entry); w != write_index_.end()) return writes[w->second].value;
  if (auto r = reads.find(entry); r != reads.end()) return r->second;
  const StoreEntry* e = store.find(entry);
  if (!e) kb::fail("[", name, "] there is no stored value '", entry, "'");
  Node n;
  n.kind = NodeKind::read;
  n.name = entry;
  const ValueId v = nodes[append(std::move(n), {e->type})].out[0];
  store_name_[v] = entry;
  return reads[entry] = v;
}

uint32_t Graph::extent(const std::string& extent_name) {
  for (uint32_t i = 1; i < extents.size(); ++i)
    if (extents[i] == extent_name) return i;
  extents.push_back(extent_name);
  return uint32_t(extents.size() - 1);
}

char* Graph::take(size_t bytes) {
  bytes = (bytes + 15) / 16 * 16;
  if (bytes > page_bytes / 4) {
    pages_.insert(pages_.begin(), std::make_unique<char[]>(bytes));
    return pages_.front().get();
  }
  if (page_used_ + bytes > page_bytes) pages_.push_back(std::make_unique<char[]>(page_bytes)), page_used_ = 0;
  page_used_ += bytes;
  return pages_.back().get() + page_used_ - bytes;
}

const kb_attr* Graph::keep_attrs(const kb_attr* a, uint32_t n) {
  if (!n) return nullptr;
  auto* kept = reinterpret_cast<kb_attr*>(take(n * sizeof(kb_attr)));
  for (uint32_t i = 0; i < n; ++i) {
    kept[i] = a[i];
    const size_t bytes = a[i].kind == KB_TEXT     ? std::strlen(a[i].v.s) + 1
                         : a[i].kind == KB_INTS   ? a[i].count * sizeof(int64_t)
                         : a[i].kind == KB_FLOATS ? a[i].count * sizeof(double)
                                                  : 0;
    if (!bytes) continue;
    char* p = take(bytes);
    std::memcpy(p, a[i].v.s, bytes);
    kept[i].v.s = p;
  }
  return kept;
}

uint32_t Graph::intern_where(const std::string& s) {
  auto [at, fresh] = where_index_.emplace(s, uint32_t(wheres.size()));
  if (fresh) wheres.push_back(s);
  return at->second;
}

std::string Graph::describe(const Node& n) const {
  const char* phase = n.phase == Phase::backward ? " backward" : n.phase == Phase::recompute ? " recompute" : "";
  const std::string what =
      n.kind == NodeKind::op ? n.op->name : (n.kind == NodeKind::input ? "input " : "read ") + n.name;
  const std::string& where = wheres[n.where];
  return "[" + (where.empty() ? name : where) + phase + "] " + what;
}

uint32_t Graph::resolve(uint32_t dtype) const {
  if (dtype == KB_COMPUTE) return options.compute;
  if (dtype == KB_WIDE) return options.compute == KB_F64 ? uint32_t(KB_F64) : uint32_t(KB_F32);
  return dtype;
}

Graph::Scope::Scope(Graph& gr, const std::string& path, Phase p, int32_t s)
    : g(gr), phase(gr.phase), segment(gr.segment) {
  g.frames.push_back({nullptr, path, g.intern_where(path)});
  g.phase = p;
  g.segment = s;
}
Graph::Scope::~Scope() {
  g.frames.pop_back();
  g.phase = phase;
  g.segment = segment;
}

kb::Values Graph::build(const Instance& c, const std::string& path, uint32_t verb, const kb::Values& in,
                        kb::Attrs attrs) {
  const std::vector<kb_attr> a(attrs.begin(), attrs.end());
  return build(c, path, verb, in, a.data(), uint32_t(a.size()));
}

kb::Values Graph::build(const Instance& c, const std::string& path, uint32_t verb, const kb::Values& in,
                        const kb_attr* attrs, uint32_t n_attrs) {
  if (!c.table->build) kb::fail("[", path, " (", c.id(), ")] this kind of component is no graph");
  if (mode != KB_UPDATE) {
    c.attrs = OwnedAttrs(attrs, n_attrs);
    c.path = path;
  }
  std::vector<kb_value> i, o(KB_MAX_IN);
  for (const kb::Value& v : in) i.push_back(v.id);
  kb_build request{KB_STRUCT_SIZE(kb_build, n_out),
                   &host_table(),
                   reinterpret_cast<kb_builder*>(this),
                   verb,
                   mode,
                   options.compute,
                   i.data(),
                   uint32_t(i.size()),
                   c.attrs.data(),
                   c.attrs.size(),
                   o.data(),
                   uint32_t(o.size())};
  const std::string at = c.config->where.text();
  frames.push_back(
      {&c, path, intern_where(path + (path.empty() ? "(" : " (") + c.id() + (at.empty() ? "" : ", " + at) + ")")});
  kb_error e{};
  const int rc = c.table->build(c.self, &request, &e);
  const std::string where = wheres[frames.back().where];
  frames.pop_back();
  // A message that already starts with its place came from further down.
  if (rc) throw kb::Error(e.message[0] == '[' ? e.message : "[" + where + "] " + e.message, uint32_t(rc));
  kb::Builder* b = nullptr;
  for (const kb::Value& v : in)
    if (v.b) b = v.b;
  kb::Values out;
  for (uint32_t k = 0; k < request.n_out; ++k) out.push_back({b, o[k]});
  return out;
}

void Graph::build_update(const Instance& c) {
  if (c.table->build && !c.path.empty()) build(c, c.path, 0, {});
  for (const auto& [slot, child] : c.children) build_update(*child);
}

void Graph::write(ValueId target, ValueId now) {
  auto at = store_name_.find(target);
  if (at == store_name_.end()) kb::fail("only a state or a parameter can be written");
  const std::string entry = at->second;
  const Life life = store.find(entry)->life;
  bool allowed = false;
  switch (mode) {
    case KB_TRAIN:
      allowed = life == Life::step || life == Life::accumulator;
      break;
    case KB_PREFILL:
    case KB_DECODE:
      allowed = life == Life::sequence || life == Life::token;
      break;
    case KB_STEP:
      allowed = life == Life::param || life == Life::optimizer || life == Life::accumulator;
      break;
    case KB_UPDATE:
      allowed = life == Life::param || life == Life::model || life == Life::step;
      break;
    default:
      break;
  }
  static const char* const modes[] = {"train", "eval", "prefill", "decode", "step", "update"};
  if (!allowed)
    kb::fail("'", entry, "' is a ", life_name(life), " value and must not be written in mode ", modes[mode]);
  if (!same_shape(type(target), type(now)) || type(target).dtype != type(now).dtype)
    kb::fail("'", entry, "' is ", type_text(type(target)), " but is written as ", type_text(type(now)));
  // A value belongs to one entry: what another entry holds is copied, and may change before or after this one does.
  ValueId shown = now;
  while (maker(shown).traits() & KB_VIEW) shown = maker(shown).in[0];
  for (ValueId v : {now, shown})
    if (auto held = store_name_.find(v); held != store_name_.end() && held->second != entry) {
      kb::Builder b = builder();
      now = b.emit("copy", {{&b, now}}).id;
      break;
    }
  auto [w, fresh] = write_index_.emplace(entry, writes.size());
  if (fresh) {
    writes.push_back({entry, reads.count(entry) ? reads.at(entry) : target, now, mode == KB_STEP || mode == KB_UPDATE});
  } else if (mode != KB_UPDATE) {
    kb::fail("'", entry, "' is written twice");
  } else {
    writes[w->second].value = now;  // the update of a component follows the optimiser
  }
  store_name_[now] = entry;
}

}  // namespace kitbash
