#include "train/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "checkpoint/checkpoint.h"
#include "kitbash/error.h"
#include "report/plan.h"

namespace kitbash {

Generator::Generator(const Recipe& recipe, Registry& registry, int64_t capacity, int64_t piece, int threads,
                     kb_device_kind device)
    : device_(registry, device, threads),
      model_(recipe, registry),
      tokenizer_(recipe.data.tokenizer
                     ? *recipe.data.tokenizer
                     : throw kb::Error("[generate] the recipe must have a [data] table with a tokenizer"),
                 registry),
      capacity_(capacity),
      piece_(piece) {
  BuildOptions o;
  o.compute = device == KB_CPU ? uint32_t(KB_F32) : compute_dtype(recipe);
  Bounds b;
  b.capacity = capacity;
  b.tokens = piece;
  prefill_ = std::make_unique<Program>(model_.serve(false, b, o), device_, ArenaMode::planned);
  b.tokens = 1;
  decode_ = std::make_unique<Program>(model_.serve(true, b, o), device_, ArenaMode::planned);
  memory_ = std::make_unique<StoreMemory>(model_.store, &device_);
  memory_->allocate();
  for (Program* p : {prefill_.get(), decode_.get()}) p->reserve(arena_);
  for (Program* p : {prefill_.get(), decode_.get()}) p->bind(arena_, *memory_);
}

void Generator::load(const std::string& checkpoint) { load_checkpoint(checkpoint, *memory_, LoadLives::weights); }

void Generator::start() {
  for (const StoreEntry& e : model_.store.entries())
    if (e.life == Life::sequence || e.life == Life::token) memory_->fill(e.name);
  length_ = 0;
}

void Generator::run(Program& p, const int32_t* tokens, int64_t n) {
  auto i32 = [&](const char* name) { return static_cast<int32_t*>(p.input(name)); };
  for (int64_t i = 0; i < n; ++i) {
    i32("tokens")[i] = tokens[i];
    i32("position")[i] = int32_t(length_ + i);
    i32("document")[i] = 0;
  }
  i32("cu")[0] = 0, i32("cu")[1] = int32_t(n);
  i32("past")[0] = int32_t(length_);
  i32("slot")[0] = 0;
  i32("last")[0] = int32_t(n - 1);
  p.set_extent("tokens", int32_t(n));
  p.run();
  length_ += n;
}

const std::vector<double>& Generator::append(const std::vector<int32_t>& tokens) {
  if (tokens.empty()) kb::fail("[generate] at least one token must be appended");
  if (length_ + int64_t(tokens.size()) > capacity_)
    kb::fail("[generate] the sequence must fit into ", capacity_, " tokens but would have ",
             length_ + int64_t(tokens.size()));
  Program* used = nullptr;
  for (size_t at = 0; at < tokens.size();) {
    const int64_t left = int64_t(tokens.size() - at), n = left == 1 ? 1 : std::min(left, piece_);
    used = n == 1 ? decode_.get() : prefill_.get();
    run(*used, tokens.data() + at, n);
    at += size_t(n);
  }
  const kb_type& t = used->output_type("logits");
  logits_.resize(size_t(t.shape[1]));
  const void* logits = used->output("logits");
  for (size_t i = 0; i < logits_.size(); ++i) logits_[i] = read_element(logits, t.dtype, int64_t(i));
  return logits_;
}

int32_t sample_token(const std::vector<double>& logits, const SamplingOptions& o, int64_t position) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[size_t(a)] > logits[size_t(b)]; });
  if (o.temperature <= 0) return order[0];
  std::vector<double> p(order.size());
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i)
    sum += p[i] = std::exp((logits[size_t(order[i])] - logits[size_t(order[0])]) / o.temperature);
  double kept = 0;
  size_t n = 0;
  while (n < p.size() && (n == 0 || kept < o.top_p * sum)) kept += p[n++];
  std::mt19937_64 r(o.seed * 0x9E3779B97F4A7C15ull + uint64_t(position));
  double u = double(r() >> 11) * 0x1p-53 * kept;
  for (size_t i = 0; i < n; ++i)
    if ((u -= p[i]) < 0) return order[i];
  return order[n - 1];
}

int64_t generate_text(Generator& g, const std::string& prompt, int64_t tokens, const SamplingOptions& o,
                      const std::function<void(const std::string&)>& say) {
  std::vector<int32_t> ids = g.tokenizer().encode(prompt);
  if (g.tokenizer().bos() >= 0) ids.insert(ids.begin(), int32_t(g.tokenizer().bos()));
  if (ids.empty()) kb::fail("[generate] the prompt must not be empty: this tokenizer has no start token");
  g.start();
  int64_t made = 0;
  const std::vector<double>* logits = &g.append(ids);
  while (made < tokens) {
    const int32_t next = sample_token(*logits, o, g.length());
    if (next == g.tokenizer().eos()) break;
    ++made;
    say(g.tokenizer().decode({next}));
    if (made < tokens) logits = &g.append({next});
  }
  return made;
}

}  // namespace kitbash
