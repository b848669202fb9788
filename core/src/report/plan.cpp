#include "report/plan.h"

#include <algorithm>
#include <set>

#include "kitbash/op.h"
#include "passes/passes.h"
#include "runtime/device.h"
#include "runtime/kernels.h"

namespace kitbash {

double node_flops(const Graph& g, const Node& n) {
  if (n.kind != NodeKind::op || !n.op->table->cost) return 0;
  const NodeCall c(g, n, nullptr);
  kb_cost cost{KB_STRUCT_SIZE(kb_cost, bytes), 0, -1};
  kb_error e{};
  if (int rc = n.op->table->cost(&c.call, &cost, &e)) throw kb::Error(g.describe(n) + ": " + e.message, uint32_t(rc));
  return cost.flops;
}

namespace {

// "layers.12.attn ..." -> 12; -1: not in a layer.
int64_t layer_of(const std::string& where) {
  if (where.compare(0, 7, "layers.")) return -1;
  return std::strtoll(where.c_str() + 7, nullptr, 10);
}

class Planner {
 public:
  Planner(const Recipe& r, Registry& registry) : r_(r), registry_(registry), model_(r, registry) {
    options_.compute = compute_dtype(r);
    options_.recompute = recompute_of(r.train.recompute);
    p_.recipe = r.name;
    p_.compute = r.train.compute;
    p_.recompute = r.train.recompute;
    p_.layers_count = int64_t(r.model.layers.size());
    p_.dim = r.model.dim, p_.vocab = r.model.vocab;
    p_.with_workspace = options_.compute == KB_F32;
    if (p_.with_workspace) device_ = std::make_unique<Device>(registry, KB_CPU, 0);
    kinds();
  }

  Plan run() {
    for (const StageConfig& s : r_.curriculum) stage(s);
    contexts();
    Bounds one;
    one.tokens = 1, one.capacity = 1;
    model_.serve(true, one, options_);
    auto apply = model_.apply(options_);
    p_.apply_nodes = int64_t(apply->nodes.size());
    p_.apply_arena = memory(*apply).arena_bytes;
    count();
    return std::move(p_);
  }

 private:
  // One row for each named layer in use, in order of appearance, between embedding and head.
  void kinds() {
    p_.layers.push_back({"embed"});
    for (const LayerConfig& l : r_.model.layers) {
      const auto at =
          std::find_if(p_.layers.begin(), p_.layers.end(), [&](const LayerPlan& x) { return x.kind == l.name; });
      row_of_layer_.push_back(size_t(at - p_.layers.begin()));
      if (at == p_.layers.end()) p_.layers.push_back({l.name});
      ++p_.layers[row_of_layer_.back()].layers;
    }
    p_.layers.push_back({"head"});
  }
  LayerPlan& row(const std::string& where) {
    const int64_t l = layer_of(where);
    if (l >= 0) return p_.layers[row_of_layer_[size_t(l)]];
    return where.compare(0, 5, "embed") ? p_.layers.back() : p_.layers.front();
  }

  MemoryPlan memory(Graph& g) {
    fold_adds(g, [&](const Node& n, uint32_t o) {
      return can_accumulate(g, n, o, registry_, KB_CPU, device_ ? &device_->table() : nullptr);
    });
    const auto ok = g.outputs.find("step_ok");
    std::vector<NodeId> order = schedule(g, ok == g.outputs.end() ? 0 : ok->second);
    return plan_memory(g, std::move(order), [&](const Node& n) -> int64_t {
      if (!device_ || (n.traits() & KB_VIEW)) return 0;
      const Choice c = choose_kernel(g, n, *device_);
      const NodeCall call(g, n, &device_->table());
      return c.kernel->workspace ? int64_t(c.kernel->workspace(&call.call)) : 0;
    });
  }

  void stage(const StageConfig& s) {
    Bounds b;
    b.tokens = s.micro_tokens, b.documents = s.max_documents;
    auto g = model_.micro(b, options_);
    StagePlan out;
    out.name = s.name;
    out.context = s.context, out.micro_tokens = s.micro_tokens, out.max_documents = s.max_documents;
    out.nodes = int64_t(g->nodes.size());
    for (const Node& n : g->nodes) out.clones += n.phase == Phase::recompute;
    const MemoryPlan m = memory(*g);
    if (s.micro_tokens == s.context) flops(*g, m.order, s.context);
    out.micro_arena = m.arena_bytes, out.feed = m.feed_bytes, out.workspace = m.peak_workspace;
    p_.stages.push_back(out);
  }

  // FLOPs depend on the context through attention alone; each context is counted as one document of that length.
  void flops(const Graph& g, const std::vector<NodeId>& order, int64_t context) {
    if (!counted_.insert(context).second) return;
    ContextPlan out;
    out.context = context;
    for (NodeId id : order) {
      const Node& n = g.nodes[id];
      if (n.phase == Phase::recompute) continue;
      const double f = node_flops(g, n) / double(context);
      out.training += f;
      if (n.phase != Phase::forward) continue;
      out.forward += f;
      if (p_.contexts.empty()) row(g.where_text(n)).flops += f;
    }
    p_.contexts.push_back(out);
  }
  void contexts() {
    for (const StageConfig& s : r_.curriculum) {
      if (counted_.count(s.context)) continue;
      Bounds b;
      b.tokens = s.context;
      BuildOptions plain = options_;
      plain.recompute = Recompute::none;
      const auto g = model_.micro(b, plain);
      flops(*g, schedule(*g), s.context);
    }
    std::stable_sort(p_.contexts.begin(), p_.contexts.end(), [](auto& a, auto& b) { return a.context < b.context; });
  }

  void count() {
    const ParameterCount c = count_parameters(model_.store);
    p_.total = c.total, p_.active = c.active;
    for (const StoreEntry& e : model_.store.entries()) {
      LayerPlan& r = row(e.name);
      const auto n = double(kb::elements(e.type)), bytes = double(e.bytes());
      switch (e.life) {
        case Life::param:
          r.parameters += n;
          r.active += e.role == KB_EMBEDDING ? 0 : e.active > 0 ? n * double(e.active) / double(e.type.shape[0]) : n;
          break;
        case Life::token:
          r.cache_bytes += bytes, p_.cache_bytes += bytes;
          break;
        case Life::sequence:
          r.state_bytes += bytes, p_.state_bytes += bytes;
          break;
        default:
          break;
      }
    }
    p_.parameters_bytes = model_.store.bytes(Life::param);
    p_.optimizer_bytes = model_.store.bytes(Life::optimizer);
    p_.accumulator_bytes = model_.store.bytes(Life::accumulator);
    p_.model_state_bytes = model_.store.bytes(Life::model);
    p_.step_state_bytes = model_.store.bytes(Life::step);
  }

  const Recipe& r_;
  Registry& registry_;
  LanguageModel model_;
  BuildOptions options_;
  std::unique_ptr<Device> device_;
  std::vector<size_t> row_of_layer_;
  std::set<int64_t> counted_;
  Plan p_;
};

}  // namespace

int64_t Plan::arena_bytes() const {
  int64_t most = apply_arena;
  for (const StagePlan& s : stages) most = std::max(most, s.micro_arena);
  return most;
}

int64_t Plan::program_bytes() const {
  int64_t nodes = 0;
  for (const StagePlan& s : stages) nodes = std::max(nodes, s.nodes);
  return (nodes + apply_nodes) * ready_node_bytes;
}

uint32_t compute_dtype(const Recipe& r) { return r.train.compute == "bf16" ? KB_BF16 : KB_F32; }

Plan make_plan(const Recipe& recipe, Registry& registry) { return Planner(recipe, registry).run(); }

}  // namespace kitbash
