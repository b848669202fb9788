// Time of the main ops on the cpu, against two floors measured in the same run: the float matrix product (GEMM) of 512^3, and a
// copy through memory. An op's floor is the larger of its FLOPs at the one speed and its bytes at the other.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "kitbash/op.h"
#include "ops/ops.h"
#include "passes/passes.h"
#include "runtime/program.h"

namespace {

using namespace kitbash;
using Build = std::function<kb::Values(kb::Builder&, Graph&)>;

struct Timer {
  Registry& registry;
  Device& device;
  double gemm = 0, copy = 0;  // FLOP/s, bytes/s

  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  static double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
  }

  // Seconds of one run of the last op built, FLOPs and bytes of it.
  struct Figures {
    double seconds, flops, bytes;
  };
  Figures run(const Build& build, const std::function<void(Program&)>& fill) {
    Store store;
    GraphOptions o;
    auto g = std::make_unique<Graph>("bench", o, registry, store);
    kb::Builder b = g->builder();
    const kb::Values out = build(b, *g);
    for (size_t i = 0; i < out.size(); ++i) g->output("o" + std::to_string(i), out[i].id);
    Program p(std::move(g), device, ArenaMode::planned, false);
    Arena arena;
    p.reserve(arena);
    StoreMemory memory(store);
    p.bind(arena, memory);
    for (const auto& [name, v] : p.graph().inputs) {
      const kb_type& t = p.graph().type(v);
      for (int64_t i = 0; i < kb::elements(t); ++i)
        if (t.dtype == KB_F32) static_cast<float*>(p.input(name))[i] = float((i * 7919 % 2003) - 1001) * 1e-3f;
    }
    if (fill) fill(p);
    const Node& n = p.graph().nodes[p.plan().order.back()];
    const NodeCall c(p.graph(), n, nullptr);
    kb_cost cost{KB_STRUCT_SIZE(kb_cost, bytes), 0, -1};
    kb_error e{};
    n.op->table->cost(&c.call, &cost, &e);
    if (cost.bytes < 0) {
      cost.bytes = 0;
      for (const auto* list : {&c.in, &c.out})
        for (const kb_tensor& t : *list)
          if (t.type.dtype) cost.bytes += double(type_bytes(t.type));
    }
    std::vector<double> seconds;
    const double stop = now() + 0.6;
    p.run();
    while (seconds.size() < 5 || (now() < stop && seconds.size() < 200)) {
      p.time_nodes(true);
      p.run();
      seconds.push_back(p.seconds().back());
    }
    return {median(seconds), cost.flops, cost.bytes};
  }
  double line(const char* name, const Build& build, const std::function<void(Program&)>& fill = {}) {
    const Figures f = run(build, fill);
    const double floor = std::max(f.flops / gemm, f.bytes / copy);
    std::printf("%-46s %9.3f ms  %8.1f GFLOP/s  %7.1f GB/s  floor %8.3f ms  %5.2f x\n", name, 1e3 * f.seconds,
                1e-9 * f.flops / f.seconds, 1e-9 * f.bytes / f.seconds, 1e3 * floor, f.seconds / floor);
    return f.seconds;
  }
};

kb::Value in(kb::Builder& b, Graph& g, const char* name, const kb::Shape& s, uint32_t dtype = KB_F32) {
  kb_type t = make_type(dtype, {s.at, s.at + s.n});
  if (std::string(name) == "g") t.lo = -5, t.hi = 0;
  return {&b, g.input(name, t)};
}
std::function<void(Program&)> one_document(int64_t tokens) {
  return [tokens](Program& p) {
    static_cast<int32_t*>(p.input("cu"))[0] = 0;
    static_cast<int32_t*>(p.input("cu"))[1] = int32_t(tokens);
    if (!p.graph().inputs.count("g")) return;
    float* g = static_cast<float*>(p.input("g"));
    for (int64_t i = 0; i < kb::elements(p.graph().type(p.graph().inputs.at("g"))); ++i)
      g[i] = -0.05f - 0.001f * float(i % 97);
  };
}

kb::Values kda(kb::Builder& b, Graph& g, int64_t T, int64_t H, int64_t K, bool backward) {
  kb::Values v{in(b, g, "q", {T, H, K}), in(b, g, "k", {T, H, K}), in(b, g, "v", {T, H, K}),
               in(b, g, "g", {T, H, K}), in(b, g, "beta", {T, H}), in(b, g, "cu", {2}, KB_I32)};
  if (!backward) return {b.emit_n("kda", v, {{"scale", 0.1}})[0]};
  v.push_back({});  // no initial state
  v.push_back(in(b, g, "do", {T, H, K}));
  return b.emit_n("kda_backward", v, {{"scale", 0.1}});
}

}  // namespace

int main() {
  try {
    Registry registry(Catalog::discover({}));
    register_base_ops(registry);
    Device device(registry, KB_CPU, 0);
    Timer t{registry, device};
    auto product = [](int64_t m, int64_t k, int64_t n) {
      return [=](kb::Builder& b, Graph& g) {
        return kb::Values{b.linear(in(b, g, "x", {m, k}), in(b, g, "w", {n, k}))};
      };
    };
    const auto ceiling = t.run(product(512, 512, 512), {});
    t.gemm = ceiling.flops / ceiling.seconds;
    const auto copy = t.run(
        [](kb::Builder& b, Graph& g) {
          return kb::Values{b.emit("copy", {in(b, g, "x", {16384, 1024})})};
        },
        {});
    t.copy = copy.bytes / copy.seconds;
    std::printf("%d threads; matrix product 512^3: %.0f GFLOP/s; copy of 64 MiB: %.1f GB/s\n",
                int(device.table().threads), 1e-9 * t.gemm, 1e-9 * t.copy);
    t.line("matmul 2048 x 128 -> 128", product(2048, 128, 128));
    t.line("matmul 2048 x 256 -> 1024", product(2048, 256, 1024));
    t.line("matmul 1024^3", product(1024, 1024, 1024));
    t.line("rms_norm [2048, 1024]", [](kb::Builder& b, Graph& g) {
      return kb::Values{b.rms_norm(in(b, g, "x", {2048, 1024}), in(b, g, "w", {1024}), 1e-5)};
    });
    t.line(
        "short_conv [2048, 384] taps 4",
        [](kb::Builder& b, Graph& g) {
          kb::Sequence s;
          s.cu = in(b, g, "cu", {2}, KB_I32);
          return kb::Values{b.short_conv(in(b, g, "x", {2048, 384}), in(b, g, "w", {384, 4}), s)[0]};
        },
        one_document(2048));
    t.line(
        "attention T 2048 h 4 d 32",
        [](kb::Builder& b, Graph& g) {
          return kb::Values{b.attention(in(b, g, "q", {2048, 4, 32}), in(b, g, "k", {2048, 4, 32}),
                                        in(b, g, "v", {2048, 4, 32}), in(b, g, "cu", {2}, KB_I32), 0.2, true)[0]};
        },
        one_document(2048));
    t.line("cross_entropy [2048, 258]", [](kb::Builder& b, Graph& g) {
      return kb::Values{
          b.cross_entropy(in(b, g, "x", {2048, 258}), in(b, g, "target", {2048}, KB_I32), in(b, g, "w", {2048}))[0]};
    });
    t.line("depth_mix 9 sources [2048, 512]", [](kb::Builder& b, Graph& g) {
      kb::Values v;
      static const char* const names[] = {"a", "b", "c", "d", "e", "f", "h", "i", "j"};
      for (const char* n : names) v.push_back(in(b, g, n, {2048, 512}));
      v.push_back(in(b, g, "norm", {512})), v.push_back(in(b, g, "query", {512}));
      return kb::Values{b.emit_n("depth_mix", v)[0]};
    });
    double each[2] = {0, 0};
    for (int64_t K : {32, 64, 128}) {
      for (bool backward : {false, true}) {
        char name[64];
        std::snprintf(name, sizeof name, "kda%s T 2048 h 4 d %d", backward ? "_backward" : "", int(K));
        t.line(
            name, [=](kb::Builder& b, Graph& g) { return kda(b, g, 2048, 4, K, backward); }, one_document(2048));
      }
    }
    const int64_t lengths[2] = {1024, 16384};
    for (bool backward : {false, true}) {
      for (int i = 0; i < 2; ++i) {
        char name[64];
        std::snprintf(name, sizeof name, "kda%s T %d h 4 d 128", backward ? "_backward" : "", int(lengths[i]));
        const int64_t T = lengths[i];
        each[i] = t.line(
                      name, [=](kb::Builder& b, Graph& g) { return kda(b, g, T, 4, 128, backward); }, one_document(T)) /
                  double(T);
      }
      std::printf("kda%s: cost a token at 16 K over that at 1 K: %.3f\n", backward ? "_backward" : "",
                  each[1] / each[0]);
    }
    return 0;
  } catch (const kb::Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 3;
  }
}
