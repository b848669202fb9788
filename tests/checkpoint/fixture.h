// fixture.h: a small store with every dtype and life, and a folder of its own for each test.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>

#include "checkpoint/checkpoint.h"
#include "kitbash/op.h"

namespace kitbash {

namespace fs = std::filesystem;

inline std::string slurp(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}
inline void spit(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc).write(bytes.data(), std::streamsize(bytes.size()));
}

class TempFolder {
 public:
  TempFolder() {
    std::string t = (fs::temp_directory_path() / ("kitbash-checkpoint-" + std::string(6, 'X'))).string();
    if (!::mkdtemp(t.data())) throw std::runtime_error("mkdtemp");
    path_ = t;
  }
  ~TempFolder() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Values {  // a store and its memory
  Store store;
  StoreMemory memory{store};

  void add(const std::string& name, uint32_t dtype, const std::vector<int64_t>& shape, Life life) {
    StoreEntry e;
    e.name = name, e.type = make_type(dtype, shape), e.life = life;
    store.declare(e);
  }
  static bool saved(Life l) { return l == Life::param || l == Life::model || l == Life::optimizer; }
  // Bytes that depend on name, place and seed; NaNs and subnormals are among them.
  void fill(uint64_t seed) {
    memory.allocate();
    for (const StoreEntry& e : store.entries()) {
      uint64_t x = seed * 0x9E3779B97F4A7C15u + std::hash<std::string>()(e.name);
      char* p = memory.at(e.name);
      for (int64_t i = 0; i < e.bytes(); ++i) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        p[i] = char(x);
      }
    }
  }
  std::map<std::string, std::string> bytes(bool only_saved = true) const {
    std::map<std::string, std::string> all;
    for (const StoreEntry& e : store.entries())
      if (!only_saved || saved(e.life)) all[e.name] = {memory.at(e.name), size_t(e.bytes())};
    return all;
  }
};

inline void declare_all(Values& v) {
  v.add("embed.weight", KB_F32, {37, 12}, Life::param);
  v.add("layer0.q", KB_BF16, {12, 24}, Life::param);
  v.add("layer0.norm", KB_F32, {12}, Life::param);
  v.add("layer0.empty", KB_F32, {0, 12}, Life::param);
  v.add("layer0.scale", KB_F64, {}, Life::param);
  v.add("layer0.router.bias", KB_F32, {8}, Life::model);
  v.add("layer0.router.count", KB_I64, {8}, Life::model);
  v.add("layer0.kinds", KB_I32, {5}, Life::model);
  v.add("layer0.flags", KB_U8, {3}, Life::model);
  v.add("layer0.router.load", KB_F32, {8}, Life::step);
  v.add("layer0.cache", KB_F32, {4, 4}, Life::sequence);
  v.add("layer0.q.grad", KB_F32, {12, 24}, Life::accumulator);
  v.add("embed.weight.adam.m", KB_F32, {37, 12}, Life::optimizer);
  v.add("layer0.q.muon", KB_BF16, {12, 24}, Life::optimizer);
}

inline CheckpointInfo info_at(int64_t step) {
  CheckpointInfo i;
  i.position.step = step, i.position.stage = 1, i.position.stage_step = step - 2, i.position.tokens = 1000 * step;
  i.position.stage_tokens = 7, i.position.skipped = 3, i.position.refused_in_a_row = 2, i.position.rollbacks = 1;
  i.position.recent_loss = {2.5, 1.0 / 3}, i.position.recent_norm = {0.1};
  i.position.data.draws = 99, i.position.data.drawn = {{"foldoc", 60}, {"jargon", 39}};
  i.position.data.turn = 1, i.position.data.open = {{0, {"jargon", 38, 12}}, {3, {"foldoc", 7, 4096}}};
  i.recipe_name = "tiny", i.recipe = "name = \"tiny\"\n[model]\ndim = 12\n", i.recipe_seed = -5;
  i.loss = 2.125;
  i.plugins = {{"residual-attention", "1.0.0 00ff"}, {"norm-rms", "1.2.0 aa"}};
  return i;
}

// The text of the kb::Error that f throws; "" and a failure when it throws none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const kb::Error& e) {
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace kitbash
