// lab.h: the pieces that every test of numbers needs: the plugins of this build, a component in a graph of its own, and
// comparisons. No test here depends on time or on chance: every draw has a seed.
#pragma once
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <random>

#include "kitbash/kinds/sequence.h"
#include "kitbash/op.h"
#include "ops/ops.h"
#include "runtime/device.h"
#include "runtime/program.h"

namespace kitbash::test {

using Numbers = std::vector<double>;

inline Registry& registry() {
  static Registry r(Catalog::discover({KITBASH_PLUGINS}));
  static const bool ready = (register_base_ops(r), true);
  (void)ready;
  return r;
}

// A file that lives as long as this.
class TextFile {
 public:
  explicit TextFile(const std::string& content) {
    std::string name = "/tmp/kitbash-numerics-" + std::string(6, 'X');
    const int f = ::mkstemp(name.data());
    if (f < 0) kb::fail("cannot make the file ", name);
    ::close(f);
    path_ = name;
    std::ofstream(path_) << content;
  }
  TextFile(const TextFile&) = delete;
  ~TextFile() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline Numbers normal(size_t n, uint64_t seed, double std = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> d(0, std);
  Numbers v(n);
  for (double& x : v) x = d(random);
  return v;
}

inline Numbers numbers(const kb_type& t, const void* data) {
  Numbers v(size_t(kb::elements(t)));
  for (size_t i = 0; i < v.size(); ++i) v[i] = read_element(data, t.dtype, int64_t(i));
  return v;
}
inline void put(void* data, const kb_type& t, const Numbers& v) {
  if (int64_t(v.size()) != kb::elements(t))
    kb::fail("got ", v.size(), " numbers for ", type_text(t), " (", kb::elements(t), ")");
  for (size_t i = 0; i < v.size(); ++i)
    fill_elements(static_cast<char*>(data) + i * dtype_bytes(t.dtype), t.dtype, 1, v[i]);
}

inline bool finite(const Numbers& v) {
  for (double x : v)
    if (!std::isfinite(x)) return false;
  return true;
}
inline double norm(const Numbers& v) {
  double s = 0;
  for (double x : v) s += x * x;
  return std::sqrt(s);
}
// |a - b| / max(|b|, least) in the 2-norm; infinite if the sizes differ or a number is not finite.
inline double error(const Numbers& a, const Numbers& b, double least = 1e-300) {
  if (a.size() != b.size() || !finite(a) || !finite(b)) return INFINITY;
  Numbers d(a);
  for (size_t i = 0; i < d.size(); ++i) d[i] -= b[i];
  return norm(d) / std::max(norm(b), least);
}
using Named = std::map<std::string, Numbers>;
// The worst error over all names, which must be the same. A tensor whose norm is far below the largest one's is measured
// against 1e-6 of that.
inline double error(const Named& a, const Named& b) {
  if (a.size() != b.size() || b.empty()) return INFINITY;
  double largest = 0, worst = 0;
  for (const auto& [name, v] : b) largest = std::max(largest, norm(v));
  for (const auto& [name, v] : b) {
    if (!a.count(name)) return INFINITY;
    worst = std::max(worst, error(a.at(name), v, 1e-6 * largest));
  }
  return worst;
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const kb::Error& e) {
    return e.what();
  }
  return "no error";
}

// A program with an arena of its own.
struct Runnable {
  Runnable(std::unique_ptr<Graph> g, Device& device, StoreMemory& memory, ArenaMode mode = ArenaMode::planned,
           bool by_rows = true)
      : program(std::move(g), device, mode, by_rows) {
    memory.allocate();
    program.reserve(arena);
    program.bind(arena, memory);
  }
  Arena arena;
  Program program;
};

// Whether the program runs an op of this name.
inline bool runs(const Program& p, const std::string& op) {
  for (NodeId n : p.plan().order)
    if (p.graph().nodes[n].is(op.c_str())) return true;
  return false;
}

// One component, or ops alone, in graphs over one store.
class Bench {
 public:
  explicit Bench(uint32_t compute = KB_F64, int threads = 1) : device(registry(), KB_CPU, threads), memory(store) {
    options.compute = compute;
  }
  void load(const std::string& kind, const std::string& name, const std::vector<std::string>& set = {}) {
    config = load_component(kind, name, "", set, registry().catalog());
    instance = create_instance(*config, registry(), &host_table());
  }
  std::unique_ptr<Graph> graph(uint32_t mode) {
    GraphOptions o = options;
    o.mode = mode;
    return std::make_unique<Graph>("bench", o, registry(), store);
  }
  // by_rows false: every node runs whole, so that it can be checked.
  Runnable& ready(std::unique_ptr<Graph> g, ArenaMode mode = ArenaMode::planned, bool by_rows = true) {
    programs.push_back(std::make_unique<Runnable>(std::move(g), device, memory, mode, by_rows));
    return *programs.back();
  }
  Numbers stored(const std::string& name) { return numbers(store.find(name)->type, memory.at(name)); }
  void set(const std::string& name, const Numbers& v) { put(memory.at(name), store.find(name)->type, v); }

  Device device;
  Store store;
  StoreMemory memory;
  GraphOptions options;
  std::unique_ptr<ComponentConfig> config;
  std::unique_ptr<Instance> instance;
  std::vector<std::unique_ptr<Runnable>> programs;
};

}  // namespace kitbash::test
