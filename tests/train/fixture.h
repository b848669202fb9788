// fixture.h: a recipe of some ten thousand parameters with two sources of generated text, trained in a folder of its own.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "kitbash/error.h"
#include "ops/ops.h"
#include "train/feed.h"
#include "train/trainer.h"

namespace kitbash::test {

namespace fs = std::filesystem;

inline Registry& registry() {
  static Registry* r = [] {
    auto* made = new Registry(Catalog::discover({KITBASH_PLUGINS, KITBASH_TRAIN_PLUGINS}));
    register_base_ops(*made);
    return made;
  }();
  return *r;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
inline std::string slurp(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  std::stringstream s;
  s << f.rdbuf();
  return s.str();
}
inline void spit(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

// Paragraphs of ragged length over a small alphabet.
inline std::string prose(int paragraphs, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text;
  for (int i = 0; i < paragraphs; ++i) {
    const auto n = 5 + random() % 40;
    for (uint64_t c = 0; c < n; ++c) text += c % 6 == 5 ? ' ' : char('a' + random() % 7 + i % 3);
    text += "\n\n";
  }
  return text;
}

// Every kind of layer; two stages, the second with another context, batch and mix; two micro-batches a step.
inline std::string recipe_text(const std::string& train = "", int64_t first_steps = 10, int64_t second_steps = 11) {
  return R"(kitbash = 1
name = "little"
[model]
dim = 16
layers = 3
vocab = 258
pattern = ["linear", "linear", "global"]
at = { 0 = "first" }
residual = { use = "block-attnres", block_layers = 1 }
[model.layer.linear]
attention = { use = "kda", heads = 2, head_dim = 8, decay = { use = "bounded", floor = -5.0 } }
ffn = { use = "latent-moe", experts = 4, active = 2, latent = 8, width = 8, shared = 8, router = "quantile", activation = "situ-glu" }
[model.layer.global]
like = "linear"
attention = { use = "gated-mla", heads = 2, q_rank = 8, kv_rank = 8, nope_dim = 4, rope_dim = 4, v_dim = 8 }
[model.layer.first]
like = "linear"
ffn = { use = "dense", width = 24, activation = "swiglu" }
[train]
seed = 3
log_every = 1
)" + train +
         R"(
[optimizer]
use = "muon"
[data]
tokenizer = { use = "bytes" }
interleave = 3
[data.sources.plain]
use = "text"
path = "plain.txt"
held_out = "held.txt"
[data.sources.lines]
use = "jsonl"
path = "lines.jsonl"
[[curriculum]]
name = "short"
context = 16
tokens = )" +
         std::to_string(64 * first_steps) + R"(
batch_tokens = 64
micro_tokens = 32
max_documents = 4
lr = 1e-2
schedule = { use = "wsd", warmup = 0.2, decay = 0.0 }
mix = { plain = 1, lines = 1 }
[[curriculum]]
name = "long"
context = 64
tokens = )" +
         std::to_string(128 * second_steps) + R"(
batch_tokens = 128
micro_tokens = 64
max_documents = 3
lr = 5e-3
schedule = { use = "cosine", warmup = 0.1, floor = 0.1 }
mix = { plain = 3, lines = 1 }
)";
}

class Place {  // a folder with the sources and a recipe
 public:
  explicit Place(const std::string& recipe = recipe_text()) {
    std::string name = (fs::temp_directory_path() / "kitbash-train-XXXXXX").string();
    if (!mkdtemp(name.data())) kb::fail("no temporary folder");
    path_ = name;
    spit(path_ + "/plain.txt", prose(12, 1));
    spit(path_ + "/held.txt", prose(6, 2));
    std::string lines;
    for (int i = 0; i < 15; ++i) {
      const std::string text = prose(1, uint64_t(100 + i));
      lines += nlohmann::json{{"text", text.substr(0, text.size() - 2)}}.dump() + "\n";
    }
    spit(path_ + "/lines.jsonl", lines);
    spit(recipe_file(), recipe);
  }
  ~Place() {
    std::error_code e;
    fs::remove_all(path_, e);
  }
  Place(const Place&) = delete;
  const std::string& path() const { return path_; }
  std::string recipe_file() const { return path_ + "/recipe.toml"; }
  Recipe recipe(const std::vector<std::string>& set = {}) const {
    return load_recipe(recipe_file(), set, registry().catalog());
  }
  std::string run(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

struct Outcome {
  TrainEnd end = TrainEnd::failed;
  std::string checkpoint, out;
  std::vector<StageResult> results;
};
inline Outcome train(const Recipe& recipe, const std::string& run, bool resume = false, int64_t stop_after = 0) {
  TrainOptions o;
  o.run = run, o.resume = resume, o.stop_after = stop_after, o.threads = 1, o.command = "kitbash train --resume";
  Outcome r;
  testing::internal::CaptureStdout();
  try {
    Trainer t(recipe, registry(), o);
    r.end = t.run();
    r.checkpoint = t.last_checkpoint(), r.results = t.results();
  } catch (...) {
    std::fputs(testing::internal::GetCapturedStdout().c_str(), stderr);
    throw;
  }
  r.out = testing::internal::GetCapturedStdout();
  return r;
}
inline std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

// metrics.jsonl without times; the memory of an evaluation is the process's.
inline std::vector<std::string> metrics(const std::string& run) {
  std::vector<std::string> lines;
  std::ifstream f(run + "/metrics.jsonl");
  for (std::string line; std::getline(f, line);) {
    auto j = nlohmann::json::parse(line);
    for (const char* key : {"seconds", "tokens_per_second", "peak_bytes", "planned_bytes"}) j.erase(key);
    lines.push_back(j.dump());
  }
  return lines;
}

inline std::string joined(const std::vector<std::string>& lines) {
  std::string s;
  for (const std::string& l : lines) s += l + "\n";
  return s;
}

}  // namespace kitbash::test
