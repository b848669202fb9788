// fixture.h: the real CPU backend, and one program at a time on it.
#pragma once
#include <cstring>

#include "runtime/program.h"
#include "tests/passes/fixture.h"

namespace kitbash::test {

// The backend's plugin, and others by file name.
inline Catalog cpu_catalog(const std::vector<std::string>& others = {}) {
  std::vector<std::string> files{std::string(KITBASH_PLUGINS) + "/libkb_backend_cpu.so"};
  files.insert(files.end(), others.begin(), others.end());
  return Catalog::from_files(files);
}

struct Machine {
  explicit Machine(const std::vector<std::string>& others = {}, int threads = 2)
      : registry(cpu_catalog(others)), device((register_base_ops(registry), registry), KB_CPU, threads) {}
  Registry registry;
  Device device;
  Store store;

  std::unique_ptr<Graph> graph(uint32_t mode = KB_TRAIN, uint32_t compute = KB_F32) {
    GraphOptions o;
    o.mode = mode, o.compute = compute;
    return std::make_unique<Graph>("test", o, registry, store);
  }
};

// A program bound to memory of its own.
struct Running {
  Running(std::unique_ptr<Graph> g, Machine& m, ArenaMode mode = ArenaMode::planned)
      : program(std::move(g), m.device, mode), memory(m.store) {
    program.reserve(arena);
    memory.allocate();
    program.bind(arena, memory);
  }
  void feed(const std::string& name, const std::vector<float>& v) {
    std::memcpy(program.input(name), v.data(), v.size() * sizeof(float));
  }
  std::vector<float> floats(const void* p, int64_t n) const {
    const auto* f = static_cast<const float*>(p);
    return {f, f + n};
  }
  std::vector<float> output(const std::string& name) const {
    return floats(program.output(name), kb::elements(program.output_type(name)));
  }
  std::vector<float> stored(const std::string& name) const {
    return floats(memory.at(name), kb::elements(memory.store().find(name)->type));
  }
  Program program;
  Arena arena;
  StoreMemory memory;
};

}  // namespace kitbash::test
