#include "model/language_model.h"

#include "kitbash/kinds/sequence.h"
#include "kitbash/op.h"
#include "ops/ops.h"
#include "passes/passes.h"

namespace kitbash {

LanguageModel::LanguageModel(const Recipe& recipe, Registry& registry) : recipe_(recipe), registry_(registry) {
  const ModelConfig& m = recipe.model;
  auto make = [&](const ComponentConfig& c) { return create_instance(c, registry, &host_table()); };
  for (const LayerConfig& l : m.layers) {
    attention_.push_back(make(*l.attention));
    ffn_.push_back(make(*l.ffn));
  }
  residual_ = make(*m.residual);
  norm_ = make(*m.norm);
  objective_ = make(*m.objective);
  if (recipe.optimizer) optimizer_ = make(*recipe.optimizer);
  const auto* service = static_cast<const kb_objective*>(objective_->table->service);
  if (!service) kb::fail("[", objective_->id(), "] an objective must say which columns it reads");
  uint32_t n = 0;
  const kb_column* c = service->columns(objective_->self, &n);
  columns_.assign(c, c + n);
}

std::unique_ptr<Graph> LanguageModel::graph(const char* name, uint32_t mode, const Bounds& b, const BuildOptions& o) {
  GraphOptions g;
  g.mode = mode;
  g.compute = o.compute;
  g.slots = b.slots, g.capacity = b.capacity;
  g.tile = o.tile;
  g.seed = uint64_t(recipe_.train.seed);
  return std::make_unique<Graph>(name, g, registry_, store);
}

LanguageModel::Forward LanguageModel::forward(Graph& g, kb::Builder& b, const Bounds& bounds, const BuildOptions& o,
                                              bool with_loss, bool with_logits) {
  const ModelConfig& m = recipe_.model;
  const uint32_t rows = g.extent("tokens");
  const bool serving = g.mode == KB_PREFILL || g.mode == KB_DECODE;
  auto in = [&](const char* name, uint32_t dtype, int64_t n, uint32_t extent = 0) {
    return kb::Value{&b, g.input(name, make_type(g.resolve(dtype), {n}, extent))};
  };
  const int64_t T = bounds.tokens, D = bounds.documents;
  const kb::Value tokens = in("tokens", KB_I32, T, rows);
  kb::Sequence seq{in("cu", KB_I32, D + 1), in("position", KB_I32, T, rows), in("document", KB_I32, T, rows), {}, {}};
  if (serving) seq.past = in("past", KB_I32, D), seq.slot = in("slot", KB_I32, D);

  kb::Value h;
  {
    Graph::Scope scope(g, "embed", Phase::forward);
    g.frames.back().path = "";
    h = b.gather(b.param("embed", b.normal({m.vocab, m.dim}, m.std), {.role = KB_EMBEDDING}), tokens);
  }
  kb::Values carry = g.build(*residual_, "", 0, {h});
  const auto count = int64_t(2 * m.layers.size());
  for (int64_t i = 0; i < count; ++i) {
    const std::string layer = "layers." + std::to_string(i / 2);
    const bool attn = i % 2 == 0;
    const char* role = attn ? "attn" : "ffn";
    // One recompute unit a layer: only the carry is kept between layers.
    Graph::Scope scope(g, layer, Phase::forward, o.recompute != Recompute::none ? int32_t(i / 2) : -1);
    kb::Values entered = g.build(*residual_, layer, 1, carry, {{"index", i}, {"count", count}, {"role", role}});
    kb::Value x = entered[0];
    carry.assign(entered.begin() + 1, entered.end());
    x = g.build(*norm_, layer + "." + role + "_norm", 0, {x})[0];
    x.b = &b;
    kb::Value y = attn ? g.build(*attention_[size_t(i / 2)], layer + ".attn", 0, kb::with({x}, seq))[0]
                       : g.build(*ffn_[size_t(i / 2)], layer + ".ffn", 0, {x, seq.document})[0];
    if (!same_shape(g.type(y.id), g.type(x.id)))
      kb::fail("[", layer, ".", role, "] must return ", type_text(g.type(x.id)), " but got ", type_text(g.type(y.id)));
    carry.push_back(y);
    carry = g.build(*residual_, layer, 2, carry, {{"index", i}, {"count", count}, {"role", role}});
  }
  h = g.build(*residual_, "", 3, carry, {{"count", count}})[0];
  h = g.build(*norm_, "final_norm", 0, {h})[0];

  Graph::Scope scope(g, "head", Phase::forward);
  g.frames.back().path = "";
  h.b = &b;
  const kb::Value head = b.param("lm_head", b.normal({m.vocab, m.dim}, m.std));
  Forward out;
  if (with_loss) {
    kb::Values batch{h, head};
    for (const kb_column& c : columns_) {
      batch.push_back(in(c.name, c.dtype, T, rows));
      if (!std::strcmp(c.name, "loss_weight")) out.weight = b.sum(batch.back(), 0);
    }
    if (!out.weight) kb::fail("[", objective_->id(), "] an objective must declare the column loss_weight");
    out.loss = g.build(*objective_, "objective", 0, batch)[0];
    out.loss.b = &b;
    // Evaluation measures the objective alone.
    if (g.mode == KB_TRAIN)
      for (ValueId v : g.losses) out.loss = out.loss + kb::Value{&b, v};
  }
  if (with_logits && o.logits) out.logits = b.linear(h, head);
  if (with_logits && !o.logits) out.logits = b.linear(b.gather(h, in("last", KB_I32, D)), head);
  return out;
}

std::unique_ptr<Graph> LanguageModel::micro(const Bounds& bounds, const BuildOptions& o) {
  auto g = graph("micro", KB_TRAIN, bounds, o);
  kb::Builder b = g->builder();
  const Forward f = forward(*g, b, bounds, o, true, false);
  g->output("loss", f.loss.id);
  g->output("weight", f.weight.id);
  std::vector<ValueId> want;
  std::map<ValueId, std::string> parameter;
  for (const auto& [name, v] : g->init) want.push_back(g->reads.at(name)), parameter[want.back()] = name;
  auto accumulate = [&](const std::string& name, kb::Value v) {
    StoreEntry e;
    e.name = name;
    e.type = g->type(v.id);
    e.type = make_type(g->resolve(KB_WIDE), {e.type.shape, e.type.shape + e.type.rank});
    e.life = Life::accumulator;
    store.declare(e);
    const kb::Value old{&b, g->read(name)};
    g->write(old.id, (old + b.wide(v)).id);
  };
  trained_.clear();
  Graph::Scope scope(*g, "accumulate", Phase::backward);
  differentiate(*g, f.loss.id, want, [&](ValueId v, ValueId gradient) {
    accumulate("grad." + parameter.at(v), {&b, gradient});
    trained_.push_back(parameter.at(v));
  });
  accumulate("sum.loss", f.loss);
  accumulate("sum.weight", f.weight);
  recompute_segments(*g, o.recompute);
  return g;
}

std::unique_ptr<Graph> LanguageModel::eval(const Bounds& bounds, const BuildOptions& o) {
  auto g = graph("eval", KB_EVAL, bounds, o);
  kb::Builder b = g->builder();
  const Forward f = forward(*g, b, bounds, o, true, o.logits);
  g->output("loss", f.loss.id);
  g->output("weight", f.weight.id);
  if (f.logits) g->output("logits", f.logits.id);
  return g;
}

std::unique_ptr<Graph> LanguageModel::serve(bool decode, const Bounds& bounds, const BuildOptions& o) {
  auto g = graph(decode ? "decode" : "prefill", decode ? KB_DECODE : KB_PREFILL, bounds, o);
  kb::Builder b = g->builder();
  g->output("logits", forward(*g, b, bounds, o, false, true).logits.id);
  return g;
}

std::unique_ptr<Graph> LanguageModel::init(const BuildOptions& o) {
  Bounds one;
  one.tokens = 1;
  auto g = graph("init", KB_EVAL, one, o);
  kb::Builder b = g->builder();
  forward(*g, b, one, o, true, false);
  g->mode = KB_STEP;
  for (const auto& [name, v] : g->init) {
    const ValueId target = g->read(name);
    kb::Value now{&b, v};
    if (store.find(master_name(name))) {  // apply has declared it; the copy is rounded from it as after every step
      const ValueId master = g->read(master_name(name));
      now = b.cast(now, kb_dtype(g->type(master).dtype));
      g->write(master, now.id);
    }
    g->write(target, b.cast(now, kb_dtype(g->type(target).dtype)).id);
  }
  for (Write& w : g->writes) w.guarded = false;
  g->reports.clear();
  return g;
}

ParameterCount count_parameters(const Store& store) {
  ParameterCount c;
  for (const StoreEntry& e : store.entries()) {
    if (e.life != Life::param) continue;
    const auto n = double(kb::elements(e.type));
    c.total += n;
    if (e.role == KB_EMBEDDING) continue;
    c.active += e.active > 0 ? n * double(e.active) / double(e.type.shape[0]) : n;
  }
  return c;
}

}  // namespace kitbash
