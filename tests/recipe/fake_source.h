// fake_source.h: the components of the kit as the recipe layer sees them, with no plugin behind them.
#pragma once
#include <fstream>
#include <map>
#include <string>

#include "kitbash/error.h"
#include "recipe/source.h"

#include <unistd.h>

#include <filesystem>

namespace kitbash {

struct FakeField : FieldInfo {
  FakeField(const char* n, const char* t) { name = n, type = t, doc = "of a test"; }
  FakeField(const char* n, const char* t, FieldValue v) : FakeField(n, t) { fallback = std::move(v); }
  static FakeField need(const char* n, const char* t) {
    FakeField f(n, t);
    f.required = true;
    return f;
  }
  static FakeField child(const char* n, const char* kind, const char* use) {
    FakeField f(n, "slot", std::string(use));
    f.kind = kind;
    return f;
  }
  FakeField in(double a, double b) const {
    FakeField f = *this;
    return f.lo = a, f.hi = b, f;
  }
  FakeField once(const char* old) const {
    FakeField f = *this;
    return f.was = old, f;
  }
  FakeField empty() const {
    FakeField f = *this;
    return f.optional = true, f;
  }
  FakeField one_of(std::vector<std::string> c) const {
    FakeField f = *this;
    return f.choices = std::move(c), f;
  }
};

class FakeSource : public ComponentSource {
 public:
  FakeSource() {
    plugin_.path = "/lib/libkb_fake.so", plugin_.version = "0.1.0";
    using F = FakeField;
    const auto i = [](int64_t v) { return FieldValue(v); };
    const auto f = [](double v) { return FieldValue(v); };
    const auto s = [](const char* v) { return FieldValue(std::string(v)); };
    add("attention", "kda",
        {F::need("heads", "int").in(1, 512), F::need("head_dim", "int").in(1, 1024), F("conv", "int", i(4)).in(1, 8),
         F("gate_rank", "int", i(0)), F("eps", "float", f(1e-5)).in(0, 1), F("std", "float", f(0.02)),
         F::child("decay", "decay", "bounded")});
    add("attention", "gated-mla",
        {F::need("heads", "int").in(1, 512), F("q_rank", "int", i(0)), F::need("kv_rank", "int"),
         F::need("nope_dim", "int"), F::need("rope_dim", "int"), F::need("v_dim", "int"), F("qk_clip", "float", f(0)),
         F("std", "float", f(0.02)), F("gate", "bool", FieldValue(true))});
    add("decay", "bounded", {F("floor", "float", f(-5)).in(-50, -1e-3).once("gate_floor")});
    add("decay", "softplus", {});
    add("ffn", "dense",
        {F::need("width", "int"), F("std", "float", f(0.02)), F::child("activation", "activation", "swiglu")});
    add("ffn", "latent-moe",
        {F::need("experts", "int"), F::need("active", "int"), F("latent", "int", i(0)), F::need("width", "int"),
         F("shared", "int", i(0)), F("scale", "float", f(1)), F("eps", "float", f(1e-5)), F("std", "float", f(0.02)),
         F::child("router", "router", "quantile"), F::child("activation", "activation", "situ-glu")});
    add("router", "quantile",
        {F("estimator", "text", s("histogram")).one_of({"histogram", "exact"}), F("bins", "int", i(2048)),
         F("capacity", "float", f(1)), F("ema", "float", f(0)), F("std", "float", f(0.02))});
    add("activation", "situ-glu", {F("beta", "float", f(4)), F("linear_beta", "float", f(25))});
    add("activation", "swiglu", {});
    add("residual", "standard", {});
    add("residual", "block-attnres", {F::need("block_layers", "int").in(1, 1024), F("eps", "float", f(1e-5))});
    add("residual", "scaled", {F("block_layers", "float", f(1)), F("eps", "float", f(1e-6))});
    add("norm", "rmsnorm", {F("eps", "float", f(1e-5))});
    add("norm", "table",
        {F("file", "path", s("")), F("sizes", "ints", FieldValue(std::vector<int64_t>{1, 2})),
         F("scales", "floats", FieldValue(std::vector<double>{}))});
    add("objective", "next-token", {});
    add("optimizer", "adamw",
        {F("beta1", "float", f(0.9)), F("beta2", "float", f(0.95)), F("eps", "float", f(1e-8)),
         F("decay", "float", f(0.1))});
    add("optimizer", "muon",
        {F("momentum", "float", f(0.95)), F("decay", "float", f(0.1)), F("scale", "float", f(0.2)),
         F("steps", "int", i(5)), F::child("others", "optimizer", "adamw")});
    add("optimizer", "circle", {F::child("others", "optimizer", "circle")});
    add("optimizer", "maybe", {F::child("others", "optimizer", "adamw").empty()});
    add("optimizer", "bare", {F::child("others", "optimizer", "")});
    add("tokenizer", "bytes", {});
    add("source", "text", {F::need("path", "path"), F("held_out", "path", s("")), F("separator", "text", s("\n\n"))});
    add("source", "jsonl", {F::need("path", "path"), F("held_out", "path", s("")), F("key", "text", s("text"))});
    add("schedule", "cosine", {F("warmup", "float", f(0.01)), F("floor", "float", f(0))});
    add("schedule", "wsd", {F("warmup", "float", f(0.01)), F("decay", "float", f(0.2)), F("floor", "float", f(0))});
  }

  const ComponentInfo* find(const std::string& kind, const std::string& name) const override {
    if (name == "twice") kb::fail("two plugins provide ", kind, ".", name, ": a.so and b.so");
    const auto i = all_.find({kind, name});
    return i == all_.end() ? nullptr : &i->second;
  }
  std::vector<std::string> names(const std::string& kind) const override {
    std::vector<std::string> r;
    for (const auto& [id, c] : all_)
      if (id.first == kind) r.push_back(id.second);
    return r;
  }
  std::vector<std::string> kinds() const override {
    std::vector<std::string> r;
    for (const auto& [id, c] : all_)
      if (r.empty() || r.back() != id.first) r.push_back(id.first);
    return r;
  }

 private:
  void add(const std::string& kind, const std::string& name, const std::vector<FakeField>& fields) {
    ComponentInfo& c = all_[{kind, name}];
    c.kind = kind, c.name = name, c.plugin = &plugin_;
    for (const auto& f : fields) c.fields.push_back(f);
  }
  PluginInfo plugin_;
  std::map<std::pair<std::string, std::string>, ComponentInfo> all_;
};

// A folder of recipes that is gone after the test; the working directory meanwhile, so that messages hold bare file
// names.
class Recipes {
 public:
  Recipes() : before_(std::filesystem::current_path()) {
    static int n = 0;
    folder_ = std::filesystem::temp_directory_path() / kb::text("kitbash-recipe-", getpid(), "-", n++);
    std::filesystem::create_directories(folder_);
    std::filesystem::current_path(folder_);
  }
  ~Recipes() {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(folder_);
  }
  void write(const std::string& name, const std::string& text) {
    const auto dir = std::filesystem::path(name).parent_path();
    if (!dir.empty()) std::filesystem::create_directories(dir);
    std::ofstream(name) << text;
  }
  Recipe load(const std::string& name, const std::vector<std::string>& set = {}) {
    return load_recipe(name, set, source);
  }
  std::string errors(const std::string& name, const std::vector<std::string>& set = {}) {
    try {
      load(name, set);
    } catch (const RecipeErrors& e) {
      return e.text();
    }
    return "no error";
  }
  FakeSource source;

 private:
  std::filesystem::path before_, folder_;
};

inline const char* good_recipe() {
  return R"(kitbash = 1
name = "good"
[model]
dim = 128
layers = 8
vocab = 259
pattern = ["linear", "linear", "linear", "global"]
at = { 0 = "first", -1 = "global" }
residual = { use = "block-attnres", block_layers = 4 }
[model.layer.linear]
attention = { use = "kda", heads = 4, head_dim = 32, decay = { use = "bounded", floor = -4 } }
ffn = { use = "latent-moe", experts = 16, active = 2, latent = 64, width = 48 }
[model.layer.global]
like = "linear"
attention = { use = "gated-mla", heads = 4, kv_rank = 64, nope_dim = 32, rope_dim = 16, v_dim = 32 }
[model.layer.first]
like = "linear"
ffn = { use = "dense", width = 256 }
[optimizer]
use = "muon"
[train]
seed = 7
[[curriculum]]
context = 256
tokens = 1000000
batch_tokens = 4096
micro_tokens = 2048
lr = 2e-3
schedule = "cosine"
)";
}

// Looks a value up in a component by the name of its key.
inline FieldValue value_of(const ComponentConfig& c, const std::string& key) {
  for (size_t i = 0; i < c.info->fields.size(); ++i)
    if (c.info->fields[i].name == key) return c.values[i];
  kb::fail("no key ", key);
}
inline int64_t int_of(const ComponentConfig& c, const std::string& key) { return std::get<int64_t>(value_of(c, key)); }
inline double real_of(const ComponentConfig& c, const std::string& key) { return std::get<double>(value_of(c, key)); }

}  // namespace kitbash
