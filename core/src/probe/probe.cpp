#include "probe/probe.h"

#include <algorithm>

#include "base/text.h"
#include "kitbash/kinds/sequence.h"
#include "kitbash/op.h"
#include "ops/ops.h"
#include "probe/files.h"
#include "probe/probe_model.h"
#include "probe/signature.h"
#include "runtime/device.h"

namespace kitbash {

namespace {

struct Attributes {  // "name=value": an integer, else a float, else a text
  std::vector<std::string> names, texts;
  std::vector<kb_attr> list;
  explicit Attributes(const std::vector<std::string>& given) {
    for (const std::string& a : given) {
      const size_t eq = a.find('=');
      if (eq == std::string::npos || eq == 0) kb::fail("[probe] --attr must be NAME=VALUE but got '", a, "'");
      names.push_back(a.substr(0, eq));
      texts.push_back(a.substr(eq + 1));
    }
    for (size_t i = 0; i < names.size(); ++i) {
      kb_attr k{names[i].c_str(), KB_TEXT, 1, {.s = texts[i].c_str()}};
      char* end = nullptr;
      const char* s = texts[i].c_str();
      if (const long long n = strtoll(s, &end, 10); *s && !*end)
        k.kind = KB_INT, k.v.i = n;
      else if (const double f = strtod(s, &end); *s && !*end)
        k.kind = KB_FLOAT, k.v.f = f;
      list.push_back(k);
    }
  }
};

class Run {
 public:
  Run(const ProbeRequest& r, Catalog catalog)
      : r_(r),
        file_(SafetensorsFile::open(r.in)),
        registry_(std::move(catalog)),
        device_(prepare(registry_), device_kind(r.device), r.threads) {
    options_.mode = r.what.compare(0, 10, "optimizer.") == 0 ? KB_STEP : r.train ? KB_TRAIN : KB_EVAL;
    options_.compute = probe_dtype(r.dtype, device_.kind());
    graph_ = std::make_unique<Graph>("probe", options_, registry_, store_);
  }

  std::vector<std::string> run() {
    kb::Builder b = graph_->builder();
    kb::Values out;
    const Attributes attrs(r_.attr);
    const size_t dot = r_.what.find('.');
    const std::string kind = r_.what.substr(0, dot), name = dot == std::string::npos ? "" : r_.what.substr(dot + 1);
    if (kind == "op") {
      refuse_component_options();
      out = build_op(b, name, attrs);
    } else {
      config_ = load_component(kind, name, r_.config, r_.set, registry_.catalog());
      out = build_component(b, kind, attrs);
    }
    for (size_t i = 0; i < out.size(); ++i)
      if (out[i]) graph_->output("out." + output_names_[i], out[i].id);
    if (r_.backward) differentiate_outputs(b, out);
    Program p(std::move(graph_), device_, probe_arena(r_.arena));
    Arena arena;
    p.reserve(arena);
    StoreMemory memory(store_, &device_);
    memory.allocate();
    p.bind(arena, memory);
    load(p, memory);
    p.run();
    for (const auto& [n, v] : p.graph().outputs) result_.add(n, p.graph().type(v), p.output(n));
    if (r_.update) update(memory);
    for (const StoreEntry& e : store_.entries())
      if (e.life != Life::param) result_.add("state." + e.name, e.type, memory.bytes_of(e.name).data());
    result_.write(r_.out);
    return kernel_lines(p);
  }

 private:
  // An op has no keys, verbs or update: what would be ignored is refused.
  void refuse_component_options() const {
    const char* option = r_.update              ? "--update"
                         : !r_.set.empty()      ? "--set"
                         : !r_.config.empty()   ? "--config"
                         : r_.verb != "forward" ? "--verb"
                                                : nullptr;
    if (option) kb::fail("[probe] ", option, " needs a component but got ", r_.what, "; an op takes --attr NAME=VALUE");
  }
  void check_attributes(const Signature& s, const Attributes& attrs) const {
    for (const std::string& a : attrs.names)
      if (std::find(s.attributes.begin(), s.attributes.end(), a) == s.attributes.end())
        kb::fail("[probe] a component of kind ", s.kind, " takes ",
                 s.attributes.empty() ? std::string("no --attr") : "the --attr " + join(s.attributes, ", "),
                 " but got '", a, "'; keys are given by --set");
  }

  static Registry& prepare(Registry& r) {
    register_base_ops(r);
    return r;
  }

  ValueId input(const std::string& name, uint32_t dtype, bool optional, bool rows) {
    const SafeTensor* t = file_.find("in." + name);
    if (!t && optional) return 0;
    if (!t) kb::fail("[probe] ", r_.what, " needs the tensor in.", name, ", which ", r_.in, " lacks");
    if (t->shape.size() > KB_MAX_RANK)
      kb::fail("[probe] in.", name, " must have at most ", KB_MAX_RANK, " axes but got ", t->shape.size());
    if (instance_ && !t->elements()) kb::fail("[probe] in.", name, " must have elements but one of its axes is empty");
    const bool tokens = rows && !t->shape.empty();
    if (tokens) tokens_ = t->shape[0];
    kb_type type = make_type(graph_->resolve(dtype), t->shape, tokens ? graph_->extent("tokens") : 0);
    const ValueId v = graph_->input(name, type);
    if (type.dtype >= KB_BF16) float_inputs_.emplace_back(name, v);
    return v;
  }

  kb::Values build_op(kb::Builder& b, const std::string& name, const Attributes& attrs) {
    kb::Values in;
    for (uint32_t i = 0; i < KB_MAX_IN; ++i) {
      const std::string key = std::to_string(i);
      const SafeTensor* t = file_.find("in." + key);
      if (!t) {
        bool more = false;
        for (uint32_t k = i + 1; k < KB_MAX_IN; ++k) more |= file_.find("in." + std::to_string(k)) != nullptr;
        if (!more) break;
        in.push_back({});
        continue;
      }
      const bool integer = t->dtype[0] == 'I' || t->dtype[0] == 'U';
      in.push_back({&b, input(key, integer ? KB_I32 : KB_WIDE, false, false)});
    }
    std::vector<kb_value> ids, o(KB_MAX_OUT);
    for (const kb::Value& v : in) ids.push_back(v.id);
    uint32_t n = KB_MAX_OUT;
    kb_error e{};
    if (int rc =
            host_table().emit(reinterpret_cast<kb_builder*>(graph_.get()), name.c_str(), ids.data(),
                              uint32_t(ids.size()), attrs.list.data(), uint32_t(attrs.list.size()), o.data(), &n, &e))
      throw kb::Error(e.message, uint32_t(rc));
    kb::Values out;
    for (uint32_t i = 0; i < n; ++i) out.push_back({&b, o[i]}), output_names_.push_back(std::to_string(i));
    return out;
  }

  kb::Values build_component(kb::Builder& b, const std::string& kind, const Attributes& attrs) {
    const Signature& s = find_signature(kind, r_.verb);
    check_attributes(s, attrs);
    instance_ = create_instance(*config_, registry_, &host_table());
    kb::Values in;
    for (const Port& p : s.inputs) {
      const bool rows = (s.sequence || s.document) && std::string(p.name) != "s0";
      in.push_back({&b, input(p.name, p.dtype, p.optional, rows)});
    }
    if (s.sequence || s.document) {
      borders_ = read_borders(file_, tokens_);
      const uint32_t e = graph_->extent("tokens");
      auto i32 = [&](const char* name, int64_t n, uint32_t extent) {
        return kb::Value{&b, graph_->input(name, make_type(KB_I32, {n}, extent))};
      };
      const kb::Value document = i32("document", tokens_, e);
      if (s.document) {
        in.push_back(document);
      } else {
        in = kb::with(in, {i32("cu", int64_t(borders_.size()), 0), i32("position", tokens_, e), document, {}, {}});
      }
    }
    for (const char* n : s.outputs) output_names_.push_back(n);
    kb::Values out = graph_->build(*instance_, "", s.number, in, attrs.list.data(), uint32_t(attrs.list.size()));
    for (kb::Value& v : out) v.b = &b;
    if (out.size() > output_names_.size()) out.resize(output_names_.size());
    return out;
  }

  void differentiate_outputs(kb::Builder& b, const kb::Values& out) {
    kb::Value loss;
    for (size_t i = 0; i < out.size(); ++i) {
      std::string key = "up_" + output_names_[i];
      if (!file_.find("in." + key) && i == 0) key = "up";
      if (!file_.find("in." + key)) continue;
      kb_type t = out[i].type();
      if (t.dtype < KB_BF16) continue;
      t.lo = -INFINITY, t.hi = INFINITY;
      t.dtype = graph_->resolve(KB_WIDE);
      const kb::Value up{&b, graph_->input(key, t)};
      const kb::Value term = b.sum(b.reshape(b.wide(out[i]) * up, {-1}), 0);
      loss = loss ? loss + term : term;
    }
    if (!loss) kb::fail("[probe] --backward needs in.up or in.up_<output> in ", r_.in);
    std::vector<std::pair<std::string, ValueId>> wanted = float_inputs_;
    for (const auto& [name, v] : graph_->init) wanted.emplace_back(param_key(name), graph_->reads.at(name));
    std::vector<ValueId> ids;
    for (const auto& [name, v] : wanted) ids.push_back(v);
    const auto d = differentiate(*graph_, loss.id, ids);
    for (const auto& [name, v] : wanted)
      if (auto g = d.find(v); g != d.end()) graph_->output("grad." + name, g->second);
  }

  // A component that owns the name of its slot has a parameter without a name of its own.
  std::string param_key(const std::string& name) const { return name.empty() ? instance_->kind() : name; }

  void load(Program& p, StoreMemory& memory) {
    for (const auto& [name, v] : p.graph().inputs)
      if (const SafeTensor* t = file_.find("in." + name))
        load_tensor(*t, "in." + name, p.graph().type(v), p.input(name));
    if (!borders_.empty()) fill_sequence(p, borders_, tokens_);
    for (const StoreEntry& e : store_.entries()) {
      const std::string key = e.life == Life::param ? "param." + param_key(e.name) : "state." + e.name;
      const SafeTensor* t = file_.find(key);
      if (!t && e.life == Life::param) t = file_.find("param." + e.name);
      if (t) load_entry(*t, key, e, memory);
      if (!t && e.life == Life::param)
        kb::fail("[probe] ", r_.what, " needs the tensor ", key, " (", type_text(e.type), "), which ", r_.in, " lacks");
    }
  }

  void update(StoreMemory& memory) {
    GraphOptions o = options_;
    o.mode = KB_UPDATE;
    auto g = std::make_unique<Graph>("update", o, registry_, store_);
    // The component sits at the root, whose path is empty; build_update skips what was never built.
    std::vector<const Instance*> open{instance_.get()};
    while (!open.empty()) {
      const Instance* c = open.back();
      open.pop_back();
      if (c->table->build) g->build(*c, c->path, 0, {});
      for (const auto& [slot, child] : c->children) open.push_back(child.get());
    }
    g->reports.clear();
    Program p(std::move(g), device_, probe_arena(r_.arena));
    Arena arena;
    p.reserve(arena);
    memory.allocate();
    p.bind(arena, memory);
    p.run();
  }

  const ProbeRequest& r_;
  SafetensorsFile file_;
  Registry registry_;
  Device device_;
  Store store_;
  GraphOptions options_;
  std::unique_ptr<Graph> graph_;
  std::unique_ptr<ComponentConfig> config_;
  std::unique_ptr<Instance> instance_;
  std::vector<std::pair<std::string, ValueId>> float_inputs_;
  std::vector<std::string> output_names_;
  std::vector<int32_t> borders_;
  int64_t tokens_ = 0;
  ResultFile result_;
};

}  // namespace

uint32_t probe_dtype(const std::string& name, kb_device_kind device) {
  if (name == "f32") return KB_F32;
  if (name == "f64" && device == KB_CPU) return KB_F64;
  if (name == "bf16" && device == KB_CUDA) return KB_BF16;
  kb::fail("[probe] --dtype must be f32 or ", device == KB_CPU ? "f64" : "bf16",
           device == KB_CPU ? " on the cpu" : " on cuda", " but got '", name, "'");
}

ArenaMode probe_arena(const std::string& name) {
  if (name == "planned") return ArenaMode::planned;
  if (name == "separate") return ArenaMode::separate;
  if (name == "poison") return ArenaMode::poison;
  kb::fail("[arena] --arena must be planned, separate or poison but got '", name, "'");
}

std::vector<std::string> kernel_lines(const Program& p) {
  std::vector<std::string> lines;
  std::set<std::string> seen;
  for (size_t i = 0; i < p.choices().size(); ++i) {
    const Choice& c = p.choices()[i];
    if (!c.kernel || c.provider == "backend-cpu" || c.provider == "backend-cuda") continue;
    std::string line = std::string(c.kernel->op) + " -> " + c.kernel->name;
    if (!c.declined.empty()) line += "  (" + c.declined.substr(0, c.declined.size() - 2) + ")";
    if (seen.insert(line).second) lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> run_probe(const ProbeRequest& r, Catalog catalog) {
  if (r.what == "model") return probe_model(r, std::move(catalog));
  return Run(r, std::move(catalog)).run();
}

}  // namespace kitbash
