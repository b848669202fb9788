// fixture.h: a small language model from the text of a recipe, its programs and its store, and batches of documents.
#pragma once
#include "lab.h"
#include "model/language_model.h"

namespace kitbash::test {

// Documents one after the other. The last token of each has no target, so that it counts nowhere.
struct Batch {
  std::vector<int32_t> tokens, target, cu{0};
  Numbers weight;
  int64_t size() const { return int64_t(tokens.size()); }
  int64_t documents() const { return int64_t(cu.size()) - 1; }
  Batch part(int64_t first, int64_t last) const {  // documents first .. last - 1
    Batch b;
    for (int64_t d = first; d < last; ++d) {
      for (int32_t t = cu[size_t(d)]; t < cu[size_t(d) + 1]; ++t) {
        b.tokens.push_back(tokens[size_t(t)]), b.target.push_back(target[size_t(t)]);
        b.weight.push_back(weight[size_t(t)]);
      }
      b.cu.push_back(int32_t(b.tokens.size()));
    }
    return b;
  }
};
inline Batch documents(const std::vector<int64_t>& lengths, int64_t vocab, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  Batch b;
  for (int64_t n : lengths) {
    for (int64_t t = 0; t < n; ++t) b.tokens.push_back(int32_t(random() % uint64_t(vocab)));
    for (int64_t t = 0; t < n; ++t) {
      const bool last = t + 1 == n;
      b.target.push_back(last ? -1 : b.tokens[size_t(b.cu.back() + t + 1)]);
      b.weight.push_back(last ? 0 : 1);
    }
    b.cu.push_back(int32_t(b.tokens.size()));
  }
  return b;
}

// The rest of a recipe around its [model].
inline std::string recipe_text(const std::string& model, const std::string& optimizer = "use = \"adamw\"",
                               const std::string& train = "") {
  return "kitbash = 1\n[model]\n" + model + "\n[optimizer]\n" + optimizer + "\n[train]\n" + train +
         "\n[[curriculum]]\ncontext = 64\ntokens = 4096\nbatch_tokens = 64\nlr = 1e-3\nschedule = { use = \"cosine\" "
         "}\n";
}

// Every attention, decay, ffn, router, activation in four layers. Widths are odd on purpose.
inline std::string hybrid(const std::string& residual, const std::string& router = "{ use = \"quantile\" }") {
  return "dim = 12\nlayers = 4\nvocab = 19\npattern = [\"a\", \"b\", \"c\", \"d\"]\nresidual = " + residual + R"(
[model.layer.a]
attention = { use = "kda", heads = 2, head_dim = 5, conv = 3, decay = { use = "bounded", floor = -5.0 } }
ffn = { use = "dense", width = 10, activation = "swiglu" }
[model.layer.b]
attention = { use = "kda", heads = 2, head_dim = 4, gate_rank = 3, decay = "softplus" }
ffn = { use = "latent-moe", experts = 5, active = 2, latent = 6, width = 7, shared = 6, activation = "situ-glu", router = )" +
         router + R"( }
[model.layer.c]
attention = { use = "gated-mla", heads = 2, q_rank = 5, kv_rank = 6, nope_dim = 4, rope_dim = 2, v_dim = 3 }
ffn = { use = "latent-moe", experts = 4, active = 2, latent = 0, width = 5, shared = 0, activation = "swiglu", router = )" +
         router + R"( }
[model.layer.d]
attention = { use = "gated-mla", heads = 2, q_rank = 0, kv_rank = 5, nope_dim = 3, rope_dim = 3, v_dim = 4, gate = false }
ffn = { use = "dense", width = 9, activation = "situ-glu" }
)";
}
inline const std::string standard = "\"standard\"", block_attnres = "{ use = \"block-attnres\", block_layers = 1 }";

using Snapshot = std::map<std::string, std::string>;  // bytes of store entries

class Lab {
 public:
  explicit Lab(const std::string& text, uint32_t compute = KB_F64, int threads = 1)
      : file_(text),
        recipe(load_recipe(file_.path(), {}, registry().catalog())),
        device(registry(), KB_CPU, threads),
        model(recipe, registry()),
        memory(model.store) {
    options.compute = compute;
    options.logits = true;
    options.recompute = recompute_of(recipe.train.recompute);
    run(add(model.init(options)));
  }

  // by_rows false: every node runs whole, so that it can be checked.
  Program& add(std::unique_ptr<Graph> g, ArenaMode mode = ArenaMode::planned, bool by_rows = true) {
    runnables_.push_back(std::make_unique<Runnable>(std::move(g), device, memory, mode, by_rows));
    return runnables_.back()->program;
  }
  static Bounds bounds(const Batch& b, int64_t tokens = 0, int64_t documents = 0) {
    Bounds x;
    x.tokens = std::max(tokens, b.size()), x.documents = std::max(documents, b.documents());
    return x;
  }
  Program& micro(const Bounds& b, ArenaMode mode = ArenaMode::planned) { return add(model.micro(b, options), mode); }
  Program& eval(const Bounds& b, ArenaMode mode = ArenaMode::planned) { return add(model.eval(b, options), mode); }
  Program& apply(ArenaMode mode = ArenaMode::planned) { return add(model.apply(options), mode); }
  Program& serve(bool decode, const Bounds& b, ArenaMode mode = ArenaMode::planned) {
    return add(model.serve(decode, b, options), mode);
  }

  // Every parameter away from the symmetries of its start (gains of 1, queries of 0), at a size at which all parts of the
  // model matter.
  void randomize(uint64_t seed = 7) {
    for (const StoreEntry& e : model.store.entries()) {
      if (e.life != Life::param) continue;
      Numbers v = stored(e.name);
      const bool matrix = e.type.rank >= 2 && e.role != KB_OTHER;
      const double std = matrix ? 1 / std::sqrt(double(e.type.shape[e.type.rank - 1])) : 0.3;
      const Numbers noise = normal(v.size(), ++seed, std);
      for (size_t i = 0; i < v.size(); ++i) v[i] = matrix ? noise[i] : v[i] + noise[i];
      set(e.name, v);
    }
  }

  static void feed(Program& p, const Batch& b, const std::vector<int32_t>& past = {},
                   const std::vector<int32_t>& slot = {}) {
    const Graph& g = p.graph();
    auto ints = [&](const char* name, std::vector<int32_t> v, int32_t rest) {
      if (!g.inputs.count(name)) return;
      v.resize(size_t(kb::elements(g.type(g.inputs.at(name)))), rest);
      std::memcpy(p.input(name), v.data(), v.size() * 4);
    };
    std::vector<int32_t> position, document;
    for (int64_t d = 0; d < b.documents(); ++d)
      for (int32_t t = b.cu[size_t(d)]; t < b.cu[size_t(d) + 1]; ++t) {
        position.push_back(t - b.cu[size_t(d)] + (past.empty() ? 0 : past[size_t(d)]));
        document.push_back(int32_t(d));
      }
    ints("tokens", b.tokens, 0), ints("target", b.target, 0), ints("cu", b.cu, b.cu.back());
    ints("position", position, 0), ints("document", document, -1);
    ints("past", past, 0), ints("slot", slot, 0);
    if (auto w = g.inputs.find("loss_weight"); w != g.inputs.end()) {
      Numbers v = b.weight;
      v.resize(size_t(kb::elements(g.type(w->second))), 0);
      put(p.input("loss_weight"), g.type(w->second), v);
    }
    p.set_extent("tokens", int32_t(b.size()));
  }
  static void run(Program& p) { p.run(); }
  static void run(Program& p, const Batch& b, const std::vector<int32_t>& past = {},
                  const std::vector<int32_t>& slot = {}) {
    feed(p, b, past, slot);
    p.run();
  }
  // The first `rows` rows of the logits.
  static Numbers logits(const Program& p, int64_t rows) {
    Numbers v = numbers(p.output_type("logits"), p.output("logits"));
    v.resize(size_t(rows * p.output_type("logits").shape[1]));
    return v;
  }
  static void step(Program& apply, double lr, int64_t number = 1) {
    const Graph& g = apply.graph();
    put(apply.input("lr"), g.type(g.inputs.at("lr")), {lr});
    put(apply.input("step"), g.type(g.inputs.at("step")), {double(number)});
    for (const char* limit : {"loss_limit", "norm_limit"}) put(apply.input(limit), g.type(g.inputs.at(limit)), {0.0});
    apply.run();
  }

  Numbers stored(const std::string& name) { return numbers(model.store.find(name)->type, memory.at(name)); }
  void set(const std::string& name, const Numbers& v) { put(memory.at(name), model.store.find(name)->type, v); }
  std::vector<std::string> names(Life life) const {
    std::vector<std::string> out;
    for (const StoreEntry& e : model.store.entries())
      if (e.life == life) out.push_back(e.name);
    return out;
  }
  Named stored(Life life) {
    Named out;
    for (const std::string& n : names(life)) out[n] = stored(n);
    return out;
  }
  Named gradients() {  // sum.loss and sum.weight among them
    return stored(Life::accumulator);
  }
  void clear() {  // accumulators and statistics, as after a step
    for (Life life : {Life::accumulator, Life::step})
      for (const std::string& n : names(life)) memory.fill(n);
  }
  Snapshot snapshot(std::vector<Life> lives = {}) {
    Snapshot s;
    for (const StoreEntry& e : model.store.entries())
      if (lives.empty() || std::count(lives.begin(), lives.end(), e.life))
        s[e.name] = std::string(memory.at(e.name), size_t(e.bytes()));
    return s;
  }
  void restore(const Snapshot& s) {
    for (const auto& [name, bytes] : s) std::memcpy(memory.at(name), bytes.data(), bytes.size());
  }

 private:
  TextFile file_;

 public:
  Recipe recipe;
  Device device;
  LanguageModel model;
  StoreMemory memory;
  BuildOptions options;

 private:
  std::vector<std::unique_ptr<Runnable>> runnables_;
};

}  // namespace kitbash::test
