#include "checkpoint/shards.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "base/text.h"
#include "kitbash/op.h"

namespace kitbash {
namespace {

// Parts of one tensor, none above the limit unless a single row is.
std::vector<ShardPiece> cut(const StoreEntry& e, const std::string& source, size_t tensor, int64_t limit) {
  const std::vector<int64_t> shape(e.type.shape, e.type.shape + e.type.rank);
  const int64_t bytes = e.bytes();
  ShardPiece whole;
  whole.tensor = tensor, whole.shape = shape, whole.source = source;
  whole.record.key = e.name, whole.record.bytes = bytes;
  if (bytes <= limit || shape.empty() || shape[0] < 2) return {whole};
  const int64_t row = bytes / shape[0], step = std::max<int64_t>(1, limit / row);
  std::vector<ShardPiece> parts;
  for (int64_t first = 0; first < shape[0]; first += step) {
    const int64_t end = std::min(shape[0], first + step);
    ShardPiece p = whole;
    p.shape[0] = end - first;
    p.offset = first * row;
    p.record.key = e.name + "[" + std::to_string(first) + ":" + std::to_string(end) + "]";
    p.record.bytes = (end - first) * row;
    p.record.global_offset = first * (row / int64_t(dtype_bytes(e.type.dtype)));
    parts.push_back(std::move(p));
  }
  return parts;
}

// Orders the pieces as the format's reference writer does (widest dtype first, then by name) and lays them out.
void lay_out(Shard& s, const std::vector<TensorRecord>& tensors, const std::string& writer, int64_t step) {
  auto width = [&](const ShardPiece& p) { return dtype_bytes(tensors[p.tensor].dtype); };
  std::sort(s.pieces.begin(), s.pieces.end(), [&](const ShardPiece& a, const ShardPiece& b) {
    return width(a) != width(b) ? width(a) > width(b) : a.record.key < b.record.key;
  });
  nlohmann::ordered_json head = nlohmann::ordered_json::object();
  head["__metadata__"] = {{"step", std::to_string(step)}, {"writer", writer}};
  std::set<std::string> keys;
  int64_t at = 0;
  for (ShardPiece& p : s.pieces) {
    if (p.record.key == "__metadata__" || !keys.insert(p.record.key).second)
      kb::fail("[checkpoint: ", p.record.key, "] this name is reserved, or stands for two values");
    head[p.record.key] = {{"dtype", safetensors_dtype(tensors[p.tensor].dtype)},
                          {"shape", p.shape},
                          {"data_offsets", {at, at + p.record.bytes}}};
    p.record.file = s.name;
    p.record.file_offset = at;  // the header is added when its size is known
    at += p.record.bytes;
  }
  std::string text = head.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  for (int i = 0; i < 8; ++i) s.header += char(text.size() >> 8 * i & 0xFF);
  s.header += text;
  for (ShardPiece& p : s.pieces) p.record.file_offset += int64_t(s.header.size());
  s.bytes = int64_t(s.header.size()) + at;
}

}  // namespace

int64_t ShardPlan::bytes() const {
  int64_t n = 0;
  for (const Shard& s : shards) n += s.bytes;
  return n;
}

ShardPlan plan_shards(const StoreMemory& memory, int64_t shard_bytes, const std::string& writer, int64_t step) {
  ShardPlan plan;
  for (const char* group : {"model", "optimizer"}) {
    const bool optimizer = group[0] == 'o';
    std::vector<Shard> shards;
    int64_t used = 0;
    for (const StoreEntry& entry : memory.store().entries()) {
      StoreEntry e = entry;
      if (!saved_life(e.life) || (e.life == Life::optimizer) != optimizer) continue;
      if (const std::string of = mastered_parameter(e.name); memory.store().find(of)) continue;
      const StoreEntry* master = e.life == Life::param ? memory.store().find(master_name(e.name)) : nullptr;
      if (master) e.type.dtype = master->type.dtype;
      if (e.name.empty() || invalid_utf8(e.name) != std::string::npos)
        kb::fail("[checkpoint: ", e.name, "] a saved value must have a name in UTF-8");
      plan.tensors.push_back({e.name, e.life, e.type.dtype, {e.type.shape, e.type.shape + e.type.rank}, {}});
      for (ShardPiece& p : cut(e, master ? master->name : e.name, plan.tensors.size() - 1, shard_bytes)) {
        if (shards.empty() || (used > 0 && used + p.record.bytes > shard_bytes)) shards.emplace_back(), used = 0;
        used += p.record.bytes;
        shards.back().pieces.push_back(std::move(p));
      }
    }
    for (size_t i = 0; i < shards.size(); ++i) {
      char name[64];
      std::snprintf(name, sizeof name, "%s-%05zu-of-%05zu.safetensors", group, i + 1, shards.size());
      shards[i].name = name;
      lay_out(shards[i], plan.tensors, writer, step);
      plan.shards.push_back(std::move(shards[i]));
    }
  }
  return plan;
}

}  // namespace kitbash
