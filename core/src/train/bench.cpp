#include "train/bench.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <span>

#include "base/number.h"
#include "base/table.h"
#include "kitbash/op.h"
#include "report/plan.h"
#include "train/feed.h"

namespace kitbash {

namespace {

bool is_attention(const std::string& op) { return op == "attention" || op == "attention_backward"; }
bool is_product(const std::string& op) {
  static const std::set<std::string> ops{"matmul", "grouped_linear", "grouped_outer", "kda", "kda_backward"};
  return is_attention(op) || ops.count(op) > 0;
}

MicroBatch random_batch(const StageConfig& s, int64_t vocab, uint64_t seed) {
  MicroBatch b;
  std::mt19937_64 r(seed);
  b.cu.push_back(0);
  while (b.used < s.micro_tokens && b.documents < s.max_documents) {
    const int64_t n = std::min(s.context, s.micro_tokens - b.used);
    for (int64_t i = 0; i < n; ++i) {
      b.tokens.push_back(int32_t(r() % uint64_t(vocab)));
      b.target.push_back(int32_t(r() % uint64_t(vocab)));
      b.weight.push_back(1);
    }
    b.used += n, ++b.documents;
    b.cu.push_back(int32_t(b.used));
  }
  b.counted = b.bytes = b.used;
  return b;
}

// What attention over the batch's documents takes of attention over one document of `tokens` rows.
double attention_part(const MicroBatch& b, int64_t tokens) {
  double squares = 0;
  for (size_t d = 0; d + 1 < b.cu.size(); ++d) squares += double(b.cu[d + 1] - b.cu[d]) * double(b.cu[d + 1] - b.cu[d]);
  return squares / double(tokens) / double(tokens);
}

int64_t machine_size(const Device& device) { return device.kind() == KB_CPU ? 512 : 8192; }

std::vector<NodeTime> by_time(const std::map<std::pair<std::string, std::string>, NodeTime>& all, double total) {
  std::vector<NodeTime> out;
  for (const auto& [key, found] : all) {
    NodeTime x = found;
    x.share = x.seconds / total;
    x.gflops = is_product(x.op) && x.seconds > 0 ? x.gflops / x.seconds : 0;
    out.push_back(x);
  }
  std::sort(out.begin(), out.end(), [](const NodeTime& a, const NodeTime& b) { return a.seconds > b.seconds; });
  return out;
}

std::string percent(double v) {
  char t[16];
  std::snprintf(t, sizeof t, "%.1f %%", 100 * v);
  return t;
}

}  // namespace

double machine_gflops(Registry& registry, Device& device, uint32_t compute) {
  const int64_t n = machine_size(device);
  Store store;
  GraphOptions o;
  o.compute = compute;
  auto g = std::make_unique<Graph>("ceiling", o, registry, store);
  kb::Builder b = g->builder();
  for (const char* name : {"a", "b"}) {  // stored: an input would be uploaded every time
    StoreEntry e;
    e.name = name, e.type = make_type(compute, {n, n}), e.life = Life::param;
    store.declare(e);
  }
  const kb::Value x{&b, g->read("a")}, w{&b, g->read("b")};
  g->output("c", b.linear(x, w).id);
  Program p(std::move(g), device, ArenaMode::planned);
  Arena arena;
  p.reserve(arena);
  StoreMemory memory(store, &device);
  memory.allocate();
  p.bind(arena, memory);
  std::mt19937 random(1);  // a product of zeros can be faster than one of numbers
  std::vector<char> numbers(size_t(n * n) * dtype_bytes(compute));
  for (const char* name : {"a", "b"}) {
    for (int64_t i = 0; i < n * n; ++i)
      fill_elements(numbers.data() + i * int64_t(dtype_bytes(compute)), compute, 1, double(random()) * 0x1p-32 - 0.5);
    memory.write(name, numbers.data(), 0, int64_t(numbers.size()));
  }
  std::vector<double> seconds;
  for (int i = 0; i < 40; ++i) {
    const double start = now_seconds();
    p.run();
    device.wait();
    seconds.push_back(now_seconds() - start);
  }
  std::nth_element(seconds.begin(), seconds.begin() + 20, seconds.end());
  return 2e-9 * double(n * n * n) / seconds[20];
}

BenchResult bench_stage(Session& s, const Recipe& recipe, const StageConfig& stage, int steps) {
  s.enter_stage(stage);
  s.init_parameters();
  BenchResult r;
  r.stage = stage.name, r.context = stage.context, r.batch_tokens = stage.batch_tokens;
  std::vector<double> seconds;
  auto one_step = [&](int i) {
    const double start = now_seconds();
    if (i == -2) r.begin_seconds = start;
    for (int64_t m = 0; m < stage.batch_tokens / stage.micro_tokens; ++m) {
      feed_batch(s.micro(), random_batch(stage, recipe.model.vocab, uint64_t(i * 131 + m)));
      s.micro().run();
    }
    feed_scalar(s.apply(), "lr", stage.lr * 0.01);
    feed_scalar(s.apply(), "step", i + 3);
    s.apply().run();
    s.device().wait();
    if (i == -2) r.start_seconds = now_seconds();
    if (i >= 0) seconds.push_back(now_seconds() - start);
  };
  auto time_nodes = [&](bool on) { s.micro().time_nodes(on), s.apply().time_nodes(on); };
  // A recorded graph has no nodes to time, so on a GPU two steps more are launched node by node.
  const bool recorded = s.device().own_memory();
  for (int i = -2; i < steps; ++i) {
    if (i == 0 && !recorded) time_nodes(true);
    one_step(i);
  }
  int profiled = steps;
  if (recorded) {
    const std::vector<double> timed = seconds;
    time_nodes(true);
    for (profiled = 0; profiled < 2; ++profiled) one_step(steps + profiled);
    seconds = timed;
  }
  std::sort(seconds.begin(), seconds.end());
  const double step = seconds[seconds.size() / 2];
  r.tokens_per_second = double(stage.batch_tokens) / step;

  std::map<std::pair<std::string, std::string>, NodeTime> by_place, by_op;
  const double part = attention_part(random_batch(stage, recipe.model.vocab, 0), stage.micro_tokens);
  double total = 0, products = 0;
  for (Program* p : {&s.micro(), &s.apply()})
    for (size_t i = 0; i < p->plan().order.size(); ++i) {
      const Node& n = p->graph().nodes[p->plan().order[i]];
      if (n.kind != NodeKind::op || (n.traits() & KB_VIEW)) continue;
      const double t = p->seconds()[i] / profiled;
      double f = p == &s.micro() ? node_flops(p->graph(), n) * double(stage.batch_tokens / stage.micro_tokens) : 0;
      if (is_attention(n.op->name)) f *= part;
      total += t;
      if (is_product(n.op->name)) {
        products += t;
        if (n.phase != Phase::recompute) r.product_flops += f / double(stage.batch_tokens);
      }
      std::string where = p->graph().where_text(n);
      if (const size_t dot = where.find('.'); where.compare(0, 7, "layers.") == 0 && dot != std::string::npos)
        where = "layers.*" + where.substr(where.find_first_not_of("0123456789", 7));
      if (const size_t line = where.find(", "); line != std::string::npos) where = where.substr(0, line) + ")";
      where += n.phase == Phase::backward ? " backward" : n.phase == Phase::recompute ? " recompute" : "";
      const std::string kernel = p->choices()[i].kernel ? p->choices()[i].kernel->name : "";
      for (NodeTime* x : {&by_place[{where, n.op->name}], &by_op[{n.op->name, kernel}]}) {
        x->where = where, x->op = n.op->name, x->kernel = kernel;
        x->seconds += t, ++x->nodes;
        x->gflops += f * 1e-9;
      }
    }
  r.product_share = total > 0 ? products / total : 0;
  r.slowest = by_time(by_place, total), r.ops = by_time(by_op, total);
  r.store_bytes = s.store_bytes(), r.arena_bytes = s.arena_bytes(), r.peak_bytes = peak_bytes(s);
  r.machine_gflops = machine_gflops(s.model().registry(), s.device(), compute_dtype(recipe));
  r.machine =
      std::string(kb::dtype_name(compute_dtype(recipe))) + ", " + std::to_string(machine_size(s.device())) + " cubed";
  r.ideal_tokens_per_second = r.machine_gflops * 1e9 / r.product_flops;
  return r;
}

std::string bench_text(const BenchResult& r) {
  char line[400];
  std::snprintf(line, sizeof line,
                "stage %s, context %lld, %lld tokens a step\n"
                "  %.0f tokens/s (median); first step begun %.2f s and done %.2f s after the start\n"
                "  matrix products: %s FLOP a token, %s of the time; this machine: %.0f GFLOP/s (%s)\n"
                "  ideal of the products alone: %.0f tokens/s; reached: %s\n",
                r.stage.c_str(), (long long)r.context, (long long)r.batch_tokens, r.tokens_per_second, r.begin_seconds,
                r.start_seconds, human_count(r.product_flops).c_str(), percent(r.product_share).c_str(),
                r.machine_gflops, r.machine.c_str(), r.ideal_tokens_per_second,
                percent(r.tokens_per_second / r.ideal_tokens_per_second).c_str());
  const std::string memory = "  memory: planned " + human_binary(double(r.store_bytes + r.arena_bytes)) + " (store " +
                             human_binary(double(r.store_bytes)) + ", arena " + human_binary(double(r.arena_bytes)) +
                             "), in use " + human_binary(double(r.peak_bytes)) + "\n";
  Table t({"slowest", "op", "kernel", "ms a step", "share", "GFLOP/s"}, "lllrrr");
  static constexpr size_t kShown = 10;
  const auto first = [](const std::vector<NodeTime>& all) {
    return std::span(all).first(std::min(kShown, all.size()));
  };
  for (const NodeTime& x : first(r.slowest)) {
    char ms[32];
    std::snprintf(ms, sizeof ms, "%.2f", 1e3 * x.seconds);
    t.row({x.where, x.op, x.kernel, ms, percent(x.share), x.gflops > 0 ? std::to_string(int(x.gflops)) : ""});
  }
  Table ops({"op, all places", "kernel", "ms a step", "share", "GFLOP/s"}, "llrrr");
  for (const NodeTime& x : first(r.ops)) {
    char ms[32];
    std::snprintf(ms, sizeof ms, "%.2f", 1e3 * x.seconds);
    ops.row({x.op, x.kernel, ms, percent(x.share), x.gflops > 0 ? std::to_string(int(x.gflops)) : ""});
  }
  return line + memory + t.text("  ") + "\n" + ops.text("  ");
}

}  // namespace kitbash
