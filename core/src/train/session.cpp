#include "train/session.h"

#include <chrono>
#include <cmath>
#include <fstream>

#include "base/number.h"
#include "kitbash/error.h"
#include "report/plan.h"
#include "train/feed.h"

namespace kitbash {

Session::Session(const Recipe& recipe, Registry& registry, int threads, ArenaMode arena, const RunDevice& where)
    : recipe_(recipe),
      device_(registry, where.kind, threads, recipe.train.deterministic),
      model_(recipe, registry),
      tokenizer_(recipe.data.tokenizer ? std::make_unique<Tokenizer>(*recipe.data.tokenizer, registry) : nullptr),
      mode_(arena),
      capture_(where.capture),
      fuse_(where.fuse || where.kind == KB_CPU) {
  if (recipe.train.compute != "f32" && device_.kind() == KB_CPU)
    kb::fail("[train] train.compute must be f32 on the cpu but got ", recipe.train.compute);
  if (tokenizer_ && tokenizer_->vocab() > recipe.model.vocab)
    kb::fail("[train] model.vocab must be at least ", tokenizer_->vocab(), " for this tokenizer but got ",
             recipe.model.vocab);
}

const Tokenizer& Session::tokenizer() const {
  if (!tokenizer_) kb::fail("[train] the recipe must have a [data] table with a tokenizer");
  return *tokenizer_;
}

BuildOptions Session::options() const {
  BuildOptions o;
  o.compute = compute_dtype(recipe_);
  o.recompute = recompute_of(recipe_.train.recompute);
  return o;
}

void Session::enter_stage(const StageConfig& s) {
  bounds_.tokens = s.micro_tokens, bounds_.documents = s.max_documents;
  micro_.reset(), apply_.reset(), eval_.reset(), arena_.reset();
  micro_ = std::make_unique<Program>(model_.micro(bounds_, options()), device_, mode_, fuse_);
  apply_ = std::make_unique<Program>(model_.apply(options()), device_, mode_, fuse_);
  eval_ = std::make_unique<Program>(model_.eval(bounds_, options()), device_, mode_, fuse_);
  for (Program* p : {micro_.get(), apply_.get(), eval_.get()}) p->set_capture(capture_);
  if (!memory_) {
    program_bytes_ = resident_bytes();
    memory_ = std::make_unique<StoreMemory>(model_.store, &device_);
  }
  arena_ = std::make_unique<Arena>();
  for (Program* p : {micro_.get(), apply_.get(), eval_.get()}) p->reserve(*arena_);
  check_room(s);
  memory_->allocate();
  for (Program* p : {micro_.get(), apply_.get(), eval_.get()}) p->bind(*arena_, *memory_);
}

// Before anything is allocated, since then the sentence can say what the memory is for.
void Session::check_room(const StageConfig& s) const {
  const int64_t free = device_.free_bytes();
  if (free < 0) return;
  const int64_t held = memory_->bytes();
  int64_t store = 0;
  for (const StoreEntry& e : model_.store.entries()) store += (e.bytes() + 63) / 64 * 64;
  if (store - held + arena_->bytes() <= free) return;
  auto part = [&](Life l) { return human_binary(double(model_.store.bytes(l))); };
  throw kb::Error(kb::text("[train] stage '", s.name, "' needs ", human_binary(double(store + arena_->bytes())),
                           " on the GPU: parameters ", part(Life::param), ", gradients ", part(Life::accumulator),
                           ", optimiser ", part(Life::optimizer), ", other states ",
                           human_binary(double(model_.store.bytes(Life::model) + model_.store.bytes(Life::step))),
                           ", activations and workspaces ", human_binary(double(arena_->bytes())), "; but ",
                           human_binary(double(free + held)),
                           " are free. Lower micro_tokens of the stage, or set train.recompute = \"block\""),
                  KB_UNSUPPORTED);
}

void Session::init_parameters() {
  Program init(model_.init(options()), device_, mode_);
  Arena arena;
  init.reserve(arena);
  memory_->allocate();
  init.bind(arena, *memory_);
  init.run();
}

void Session::clear_sums() {
  for (const StoreEntry& e : model_.store.entries())
    if (e.life == Life::accumulator || e.life == Life::step) memory_->fill(e.name);
}

std::optional<std::string> Session::first_bad_node(const std::vector<MicroBatch>& batches) {
  // On the CPU nodes run together, so the check needs a program of its own; a GPU has no room for a second arena.
  std::unique_ptr<Program> alone;
  Arena arena;
  if (!device_.own_memory()) {
    alone = std::make_unique<Program>(model_.micro(bounds_, options()), device_, mode_, false);
    alone->reserve(arena);
    alone->bind(arena, *memory_);
  }
  Program& whole = alone ? *alone : *micro_;
  clear_sums();
  std::optional<std::string> bad;
  for (size_t i = 0; i < batches.size() && !bad; ++i) {
    feed_batch(whole, batches[i]);
    bad = whole.run(Check::finite);
  }
  clear_sums();
  return bad;
}

int64_t Session::planned_bytes() const {
  if (device_.own_memory()) return memory_->bytes() + arena_->bytes();
  int64_t nodes = 0;
  for (const Program* p : {micro_.get(), apply_.get(), eval_.get()}) nodes += int64_t(p->graph().nodes.size());
  return program_bytes_ + memory_->bytes() + arena_->bytes() + nodes * ready_node_bytes;
}

std::optional<Evaluation> evaluate(Session& s, const Recipe& recipe, const StageConfig& stage, int64_t limit,
                                   bool (*stop)()) {
  StreamOptions o;
  o.split = "held_out";
  o.seed = uint64_t(recipe.train.seed);
  o.context = stage.context, o.micro_tokens = stage.micro_tokens, o.max_documents = stage.max_documents;
  DataStream stream(recipe.data, s.model().registry(), s.tokenizer(), o);
  double nats = 0, weight = 0;
  Evaluation e;
  while (limit == 0 || e.tokens < limit) {
    if (stop && stop()) return std::nullopt;
    const MicroBatch b = stream.next();
    if (b.used == 0) break;
    feed_batch(s.eval(), b);
    s.eval().run();
    nats += s.eval().scalar("loss");
    weight += s.eval().scalar("weight");
    e.tokens += b.counted;
    e.bytes += b.bytes;
  }
  if (weight > 0) e.loss = nats / weight;
  if (e.bytes > 0) e.bits_per_byte = nats / std::log(2.0) / double(e.bytes);
  return e;
}

double now_seconds() {
  static const auto start = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

namespace {
int64_t status_bytes(const std::string& key) {
  std::ifstream f("/proc/self/status");
  for (std::string line; std::getline(f, line);)
    if (line.compare(0, key.size(), key) == 0) return std::strtoll(line.c_str() + key.size() + 1, nullptr, 10) * 1024;
  return 0;
}
}  // namespace
int64_t resident_bytes() { return status_bytes("VmRSS"); }
int64_t peak_bytes(const Session& s) {
  const int64_t used = s.device().used_bytes();
  return used < 0 ? peak_resident_bytes() : used;
}
int64_t peak_resident_bytes() { return status_bytes("VmHWM"); }

}  // namespace kitbash
