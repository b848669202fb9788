// manifest.h: manifest.pb as plain structs. Only manifest.cpp knows Protobuf.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/hash.h"

namespace kitbash {

constexpr uint32_t kCheckpointFormat = 1;
constexpr const char* kManifestFile = "manifest.pb";
constexpr const char* kManifestSum = "manifest.sum";

struct FileRecord {
  std::string name;
  int64_t bytes = 0;
  Digest digest{};
};

struct PieceRecord {
  std::string file, key;  // key: its name in that safetensors file
  int64_t file_offset = 0, bytes = 0;
  int64_t global_offset = 0;  // in elements of the row-major tensor
  Digest digest{};
};

struct TensorRecord {
  std::string name;
  Life life = Life::param;
  uint32_t dtype = KB_NONE;
  std::vector<int64_t> shape;
  std::vector<PieceRecord> pieces;  // by global_offset
  int64_t elements() const;
};

struct Manifest {
  CheckpointInfo info;
  std::vector<FileRecord> files;
  std::vector<TensorRecord> tensors;
};

bool saved_life(Life l);                         // param, model, optimizer
std::string safetensors_dtype(uint32_t dtype);   // KB_BF16 -> "BF16"
std::string record_text(const TensorRecord& t);  // "f32 [4, 2]"

std::string encode_manifest(const Manifest& m);
// Checks everything that can be checked without another file: format, names, that the pieces tile each tensor and lie inside
// their files. `where` begins messages.
Manifest decode_manifest(std::string_view bytes, const std::string& where);
// The one line of manifest.sum, as xxh128sum writes it.
std::string manifest_sum(std::string_view manifest);
// Reads manifest.pb and manifest.sum of the checkpoint, compares, decodes.
Manifest open_manifest(const std::string& path);

}  // namespace kitbash
