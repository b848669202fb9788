// shards.h: how the saved values of a store lie in safetensors files.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace kitbash {

struct ShardPiece {
  size_t tensor = 0;   // index in ShardPlan::tensors
  PieceRecord record;  // all but the digest
  std::vector<int64_t> shape;
  std::string source;  // the store entry that the bytes come from: the parameter, or its wide master
  int64_t offset = 0;  // in it, in bytes
};

struct Shard {
  std::string name;                // model-00001-of-00002.safetensors
  std::string header;              // the 8 bytes of its size and the JSON
  std::vector<ShardPiece> pieces;  // in file order
  int64_t bytes = 0;               // of the whole file
};

struct ShardPlan {
  std::vector<TensorRecord> tensors;  // without pieces
  std::vector<Shard> shards;
  int64_t bytes() const;
};

// A parameter with a wide master is saved as the master, under the parameter's name: what is saved does not depend on the type
// that the model computes in. Parameters and model states go to model-*, optimiser states to optimizer-*; in store order, a new
// file whenever the data would pass `shard_bytes`. A larger tensor is cut between rows; its pieces are called
// "name[first row:end row]".
ShardPlan plan_shards(const StoreMemory& memory, int64_t shard_bytes, const std::string& writer, int64_t step);

}  // namespace kitbash
