// Running on a device with memory of its own, on the fake of fake_cuda.cpp: what the CPU gives, node by node and recorded.
#include <cmath>
#include <cstring>
#include <random>

#include "tests/runtime/fixture.h"

namespace kitbash {
namespace {

using test::error_of;
using test::input;
using Floats = std::vector<float>;

const std::string fake = std::string(KITBASH_TEST_PLUGINS) + "/libkb_test_fake_cuda.so";

struct Machine {
  explicit Machine(kb_device_kind kind)
      : registry(Catalog::from_files({kind == KB_CPU ? std::string(KITBASH_PLUGINS) + "/libkb_backend_cpu.so" : fake})),
        device((register_base_ops(registry), registry), kind, 1) {}
  std::unique_ptr<Graph> graph(uint32_t mode = KB_TRAIN) {
    GraphOptions o;
    o.mode = mode;
    return std::make_unique<Graph>("test", o, registry, store);
  }
  ValueId stored(Graph& g, const std::string& name, const std::vector<int64_t>& shape, double fill, Life life) {
    StoreEntry e;
    e.name = name, e.type = make_type(KB_F32, shape), e.fill = fill, e.life = life;
    store.declare(e);
    return g.read(name);
  }
  Registry registry;
  Device device;
  Store store;
};

struct Running {
  Running(std::unique_ptr<Graph> g, Machine& m, ArenaMode mode = ArenaMode::planned)
      : program(std::move(g), m.device, mode), memory(m.store, &m.device) {
    program.reserve(arena);
    memory.allocate();
    program.bind(arena, memory);
  }
  void feed(const std::string& name, const Floats& v) { std::memcpy(program.input(name), v.data(), v.size() * 4); }
  static Floats floats(const void* p, int64_t n) {
    Floats v(size_t(n), 0);
    std::memcpy(v.data(), p, v.size() * 4);
    return v;
  }
  Floats output(const std::string& name) const {
    return floats(program.output(name), kb::elements(program.output_type(name)));
  }
  Floats stored(const std::string& name) const {
    const std::vector<char> b = memory.bytes_of(name);
    return floats(b.data(), int64_t(b.size() / 4));
  }
  Program program;
  Arena arena;
  StoreMemory memory;
};

// Products, sums over unused rows, an accumulator, a report.
struct Micro {
  Machine m;
  Running r;
  explicit Micro(kb_device_kind kind, ArenaMode mode = ArenaMode::planned) : m(kind), r(build(m), m, mode) {}
  static std::unique_ptr<Graph> build(Machine& m) {
    auto g = m.graph();
    kb::Builder b = g->builder();
    const kb::Value x{&b, g->input("x", make_type(KB_F32, {6, 4}, g->extent("tokens")))};
    const kb::Value w = input(*g, b, "w", {4, 4});
    const kb::Value y = b.exp(b.matmul(x, w)) + 1.0;
    const kb::Value sum{&b, m.stored(*g, "sum", {4, 4}, 2, Life::accumulator)};
    g->write(sum.id, (sum + b.matmul(b.permute(x, {1, 0}), y)).id);
    g->output("y", y.id);
    g->output("total", b.sum(y, 0).id);
    return g;
  }
  void step(int seed, int rows) {
    std::mt19937 random{unsigned(seed)};
    Floats x(24, 0), w(16);
    for (int i = 0; i < rows * 4; ++i) x[size_t(i)] = float(random() % 1000) / 1000 - 0.5f;
    for (float& v : w) v = float(random() % 1000) / 1000 - 0.5f;
    r.feed("x", x), r.feed("w", w);
    r.program.set_extent("tokens", rows);
    r.program.run();
  }
};

TEST(DeviceRun, gives_the_bits_of_the_cpu_run_by_run_recorded_or_not) {
  for (const ArenaMode mode : {ArenaMode::planned, ArenaMode::separate, ArenaMode::poison})
    for (const bool capture : {true, false}) {
      Micro cpu(KB_CPU), gpu(KB_CUDA, mode);
      gpu.r.program.set_capture(capture);
      int i = 0;
      for (const int rows : {6, 6, 4, 6, 0, 4, 6}) {  // whole and cut batches are two recordings
        cpu.step(i, rows), gpu.step(i, rows);
        for (const char* name : {"y", "total"}) EXPECT_EQ(gpu.r.output(name), cpu.r.output(name)) << name << " " << i;
        EXPECT_EQ(gpu.r.stored("sum"), cpu.r.stored("sum")) << i;
        ++i;
      }
    }
}

TEST(DeviceRun, uploads_what_the_host_wrote_even_through_an_old_pointer) {
  Micro gpu(KB_CUDA);
  auto* x = static_cast<float*>(gpu.r.program.input("x"));
  gpu.step(1, 6);
  gpu.step(1, 6);
  const Floats before = gpu.r.output("y");
  x[0] += 1;
  gpu.r.program.run();
  EXPECT_NE(gpu.r.output("y")[0], before[0]);
  EXPECT_EQ(gpu.r.output("y")[5], before[5]);
}

// w <- w - x in place, v <- exp(w - x); guarded. The count starts afresh either way.
struct Step {
  Machine m{KB_CUDA};
  Running r{build(m), m};
  static std::unique_ptr<Graph> build(Machine& m) {
    auto g = m.graph(KB_STEP);
    kb::Builder b = g->builder();
    const kb::Value x = input(*g, b, "x", {2});
    const kb::Value w{&b, m.stored(*g, "w", {2}, 5, Life::param)}, v{&b, m.stored(*g, "v", {2}, 6, Life::param)};
    m.stored(*g, "count", {2}, 3, Life::step), m.stored(*g, "zero", {20}, 0, Life::accumulator),
        m.stored(*g, "nought", {3}, 0, Life::accumulator);
    g->write(w.id, (w - x).id);
    g->write(v.id, b.exp(w - x).id);
    for (const char* name : {"count", "nought", "zero"}) g->resets.push_back(name);
    g->output("step_ok", b.is_finite(b.square_sum(x)).id);
    return g;
  }
  void run(const Floats& x) {
    const Floats marks(20, 77);
    for (const char* name : {"count", "zero", "nought"})
      r.memory.write(name, marks.data(), 0, m.store.find(name)->bytes());
    r.feed("x", x);
    r.program.run();
    EXPECT_EQ(r.stored("count"), (Floats{3, 3}));
    EXPECT_EQ(r.stored("zero"), Floats(20, 0));
    EXPECT_EQ(r.stored("nought"), Floats(3, 0));
  }
};

TEST(DeviceRun, a_bad_step_writes_nothing_and_still_starts_counting_afresh) {
  Step s;
  s.run({NAN, 1});  // launched node by node
  EXPECT_EQ(s.r.program.scalar("step_ok"), 0);
  EXPECT_EQ(s.r.stored("w"), (Floats{5, 5}));
  s.run({1, 2});
  EXPECT_EQ(s.r.program.scalar("step_ok"), 1);
  EXPECT_EQ(s.r.stored("w"), (Floats{4, 3}));
  s.run({NAN, 2});  // recorded
  EXPECT_EQ(s.r.program.scalar("step_ok"), 0);
  EXPECT_EQ(s.r.stored("w"), (Floats{4, 3}));
  EXPECT_FLOAT_EQ(s.r.stored("v")[0], std::exp(4.f));
  s.run({1, 1});
  EXPECT_EQ(s.r.stored("w"), (Floats{3, 2}));
  EXPECT_FLOAT_EQ(s.r.stored("v")[1], std::exp(2.f));
}

TEST(DeviceRun, names_the_first_node_that_is_not_finite_after_recorded_runs) {
  Machine m(KB_CUDA);
  auto g = m.graph();
  kb::Builder b = g->builder();
  {
    Graph::Scope scope(*g, "layers.5.attn", Phase::forward);
    g->output("y", b.sum(b.log(input(*g, b, "x", {3})), 0).id);
  }
  Running r(std::move(g), m);
  for (int i = 0; i < 3; ++i) {
    r.feed("x", {1, 2, 3});
    EXPECT_FALSE(r.program.run());
  }
  r.feed("x", {1, 0, 3});
  const auto bad = r.program.run(Check::finite);
  ASSERT_TRUE(bad);
  EXPECT_EQ(*bad, "[layers.5.attn] log: output 0 has -inf at element 1");
}

TEST(DeviceRun, times_nodes) {
  Micro gpu(KB_CUDA);
  gpu.step(1, 6);
  gpu.r.program.time_nodes(true);
  gpu.step(1, 6);
  gpu.step(1, 6);
  for (const double s : gpu.r.program.seconds()) EXPECT_DOUBLE_EQ(s, 2e-3);
}

TEST(DeviceRun, says_why_the_backend_does_not_open) {
  setenv("KITBASH_FAKE_CUDA_REFUSES", "[cuda] a driver must be installed", 1);
  EXPECT_EQ(error_of([] { Machine m(KB_CUDA); }), "[device] [cuda] a driver must be installed");
  unsetenv("KITBASH_FAKE_CUDA_REFUSES");
}

TEST(DeviceKind, is_cpu_or_cuda) {
  EXPECT_EQ(device_kind("cpu"), KB_CPU);
  EXPECT_EQ(device_kind("cuda"), KB_CUDA);
  EXPECT_EQ(error_of([] { device_kind("gpu"); }), "[device] --device must be cpu or cuda but got 'gpu'");
}

}  // namespace
}  // namespace kitbash
