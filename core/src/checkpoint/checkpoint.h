// checkpoint.h: a directory that is there whole or not at all. step-00001000.tmp/ is written (safetensors shards, then
// manifest.pb, then manifest.sum, its checksum), synced, and renamed; only then `latest` moves, and only then old ones go.
// The format is described in checkpoints/README.md.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/stream.h"
#include "runtime/memory.h"

namespace kitbash {

class FileOps;

struct TrainPosition {
  int64_t step = 0;                              // optimiser steps done, over all stages
  int64_t stage = 0;                             // index in the curriculum
  int64_t stage_step = 0;                        // steps done in it
  int64_t tokens = 0, stage_tokens = 0;          // counted tokens
  int64_t skipped = 0;                           // steps that step_ok or the spike rule refused
  int64_t refused_in_a_row = 0;                  // of these, the last ones without a good one between
  int64_t rollbacks = 0;                         // to an earlier checkpoint, after too many of them
  std::vector<double> recent_loss, recent_norm;  // windows of the spike rule
  DataPosition data;                             // of the stage's stream
  bool operator==(const TrainPosition&) const = default;
};

struct CheckpointInfo {  // from manifest.pb alone
  std::string path;
  TrainPosition position;
  std::string recipe_name, recipe;  // resolved TOML
  int64_t recipe_seed = 0;
  double loss = 0;                             // mean of the last step
  std::map<std::string, std::string> plugins;  // id -> "version sha256-of-file"; see plugin_identities
  int64_t bytes = 0;                           // of all its files; set by reading
  std::string written;                         // UTC, ISO 8601; set by save
  std::string kitbash;                         // version of the program that wrote it; set by save
};

struct SaveOptions {
  // A tensor larger than this is cut between rows of its axis 0; one row is never cut.
  int64_t shard_bytes = int64_t(2) << 30;
  FileOps* files = nullptr;  // null: the system's
};

class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string folder, int keep = 3, SaveOptions options = {});
  // Writes step-<8 digits>, publishes it, removes all older ones but the newest `keep` with it; returns its path. Saved: lives
  // param, model, optimizer. Checkpoints of later steps belong to a course that was left: they are renamed to
  // step-<8 digits>.left and never loaded by themselves.
  // Throws kb::Error with KB_IO; then what was there before is as it was. When the disk is full, the message has the bytes
  // needed and free. What fails after the checkpoint is durable (`latest`, removal) goes to `notices`; null: is thrown too.
  std::string save(const StoreMemory& memory, const CheckpointInfo& info, std::vector<std::string>* notices = nullptr);
  // The newest that verifies; broken ones are named in `notices`. Empty path: none.
  std::string newest(std::vector<std::string>& notices) const;
  // By step; unfinished ones are left out, broken ones (by manifest alone) too, with a notice.
  std::vector<CheckpointInfo> list(std::vector<std::string>* notices = nullptr) const;

 private:
  std::string folder_;
  int keep_;
  SaveOptions options_;
};

// Of step-<8 digits>; throws kb::Error when the manifest is missing, changed, or of a newer format.
CheckpointInfo read_manifest(const std::string& path);
// Reads every byte and compares checksums; throws naming file and tensor. Nothing of the model is touched.
void verify_checkpoint(const std::string& path);
// Verifies, then fills the store (and allocates it where that was not done). Strict: every saved life of the store must be in
// the file with its shape, and nothing else. The store is as before when this throws, except when a file that had just been
// read whole cannot be read again; the message says so then.
// weights: optimizer states are left out on both sides, as serving has none.
enum class LoadLives { all, weights };
CheckpointInfo load_checkpoint(const std::string& path, StoreMemory& memory, LoadLives lives = LoadLives::all);
// Lines that say what differs (tensors, positions, recipe lines, plugins); empty: equal. Verifies both first. Time, program
// version, and how tensors lie in files do not count.
std::vector<std::string> diff_checkpoints(const std::string& a, const std::string& b);
// Lines of two resolved recipes that differ: "- of the first", "+ of the second"; empty: equal.
std::vector<std::string> diff_recipes(const std::string& a, const std::string& b);

// Id -> "version sha256-of-file" of the plugins loaded so far, for CheckpointInfo::plugins.
std::map<std::string, std::string> plugin_identities(const Registry& registry);

}  // namespace kitbash
