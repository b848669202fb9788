// apply: the step as one transaction. First the norm of the mean gradient and step_ok; only then optimiser and component
// updates. Accumulators and STEP states go back to their start whether or not the step was good.
#include "kitbash/op.h"
#include "model/language_model.h"

namespace kitbash {

std::unique_ptr<Graph> LanguageModel::apply(const BuildOptions& o) {
  if (!optimizer_) kb::fail("[apply] the recipe has no [optimizer]");
  if (trained_.empty()) kb::fail("[apply] no parameter has a gradient; build micro first");
  auto g = graph("apply", KB_STEP, {}, o);
  kb::Builder b = g->builder();
  Graph::Scope scope(*g, "step", Phase::apply);
  g->frames.back().path = "";
  guard_and_step(*g, b);
  g->mode = KB_UPDATE;
  for (size_t i = 0; i < attention_.size(); ++i) {
    g->build_update(*attention_[i]);
    g->build_update(*ffn_[i]);
  }
  g->build_update(*residual_);
  g->build_update(*norm_);
  for (const StoreEntry& e : store.entries())
    if (e.life == Life::accumulator || e.life == Life::step) g->resets.push_back(e.name);
  return g;
}

void LanguageModel::guard_and_step(Graph& g, kb::Builder& b) {
  const uint32_t wide = g.resolve(KB_WIDE);
  const kb::Value lr{&b, g.input("lr", make_type(wide, {}))}, step{&b, g.input("step", make_type(wide, {}))};
  const kb::Value weight{&b, g.read("sum.weight")}, loss{&b, g.read("sum.loss")};
  const kb::Value tiny = b.fill({}, 1e-30), inverse = b.fill({}, 1.0) / b.maximum(weight, tiny);
  kb::Value squares;
  for (size_t i = 0; i < trained_.size();) {
    kb::Values some;
    for (; i < trained_.size() && some.size() < KB_MAX_IN; ++i) some.push_back({&b, g.read("grad." + trained_[i])});
    const kb::Value s = b.square_sum(some);
    squares = squares ? squares + s : s;
  }
  const kb::Value norm = b.sqrt(squares) * inverse, mean = loss * inverse;
  g.output("grad_norm", norm.id);
  g.output("loss", mean.id);
  // A step counts when something was counted, nothing overflowed, and no limit is passed; a limit of 0 is none.
  kb::Value ok = b.is_finite(norm) * b.is_finite(mean) * b.less(b.fill({}, 0), weight);
  for (const auto& [name, figure] : {std::pair{"loss_limit", mean}, {"norm_limit", norm}}) {
    const kb::Value limit{&b, g.input(name, make_type(wide, {}))};
    ok = ok * (1 - b.less(b.fill({}, 0), limit) * b.less(limit, figure));
  }
  g.output("step_ok", ok.id);
  kb::Value scale = inverse;
  if (const double clip = recipe_.train.clip; clip > 0)
    scale = inverse * b.minimum(b.fill({}, 1), b.fill({}, clip) / b.maximum(norm, tiny));

  for (const std::string& name : trained_) {
    const StoreEntry e = *store.find(name);
    kb::Value w{&b, g.read(name)};
    const bool narrow = e.type.dtype != wide;
    if (narrow) {  // the optimiser works on a wide master; what the model reads is its copy
      StoreEntry master = e;
      master.name = master_name(name);
      master.type.dtype = wide;
      master.life = Life::optimizer;
      store.declare(master);
      w = {&b, g.read(master.name)};
    }
    const kb::Value sum{&b, g.read("grad." + name)};
    kb::Values now = g.build(*optimizer_, "opt." + name, 0, {w, sum * scale, lr, step, sum, scale},
                             {{"role", int64_t(e.role)},
                              {"blocks", e.blocks},
                              {"flags", int64_t(e.flags)},
                              {"name", name.c_str()},
                              {"copy", int64_t(narrow && e.type.dtype == g.resolve(KB_COMPUTE) ? e.type.dtype : 0)}});
    for (kb::Value& v : now) v.b = &b;
    g.write(w.id, now[0].id);
    if (narrow) g.write(g.read(name), now.size() > 1 && now[1] ? now[1].id : b.cast(now[0], kb_dtype(e.type.dtype)).id);
  }
}

}  // namespace kitbash
