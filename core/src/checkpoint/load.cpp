#include <map>
#include <memory>

#include "base/sha256.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "checkpoint/read.h"
#include "checkpoint/verify.h"
#include "kitbash/op.h"

namespace kitbash {
namespace {

// A bf16 parameter is saved wide (its master); one that was saved wide is rounded when nobody keeps a master.
bool rounds(const StoreEntry& e, const TensorRecord& t) {
  return e.life == Life::param && e.type.dtype == KB_BF16 && t.dtype == KB_F32;
}

// Writes elements from `first` on.
void put(StoreMemory& memory, const StoreEntry& e, const TensorRecord& t, int64_t first,
         const std::vector<char>& bytes) {
  const auto n = int64_t(bytes.size() / dtype_bytes(t.dtype));
  const auto width = int64_t(dtype_bytes(e.type.dtype));
  if (!rounds(e, t)) return memory.write(e.name, bytes.data(), first * width, int64_t(bytes.size()));
  std::vector<uint16_t> narrow(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) narrow[size_t(i)] = to_bf16(float(read_element(bytes.data(), t.dtype, i)));
  memory.write(e.name, narrow.data(), first * width, n * width);
  if (memory.store().find(master_name(e.name)))
    memory.write(master_name(e.name), bytes.data(), first * 4, int64_t(bytes.size()));
}

bool wanted(Life l, LoadLives lives) { return saved_life(l) && (lives == LoadLives::all || l != Life::optimizer); }

// Every saved value of the store is in the checkpoint as the store has it, and nothing else is.
void check_against(const Store& store, const Manifest& m, const std::string& path, LoadLives lives) {
  std::map<std::string, const TensorRecord*> there;
  for (const TensorRecord& t : m.tensors)
    if (wanted(t.life, lives)) there[t.name] = &t;
  for (const StoreEntry& e : store.entries()) {
    if (!wanted(e.life, lives) || store.find(mastered_parameter(e.name))) continue;
    const std::string where = "[" + path + ": " + e.name + "]";
    const auto at = there.find(e.name);
    if (at == there.end())
      kb::fail(where, " must be ", type_text(e.type), " (", life_name(e.life), ") but the checkpoint does not have it");
    const TensorRecord& t = *at->second;
    if (!same_shape(make_type(t.dtype, t.shape), e.type) || (t.dtype != e.type.dtype && !rounds(e, t)))
      kb::fail(where, " must be ", type_text(e.type), " but is ", record_text(t));
    if (t.life != e.life) kb::fail(where, " must have the life ", life_name(e.life), " but has ", life_name(t.life));
    there.erase(at);
  }
  if (!there.empty())
    kb::fail("[", path, ": ", there.begin()->first, "] is ", record_text(*there.begin()->second),
             " in the checkpoint but this model has no such value",
             there.size() > 1 ? kb::text("; nor ", there.size() - 1, " others") : "",
             "; load it with the recipe that it was written by");
}

}  // namespace

CheckpointInfo load_checkpoint(const std::string& path, StoreMemory& memory, LoadLives lives) {
  const Manifest m = verified_manifest(path);
  check_against(memory.store(), m, path, lives);
  memory.allocate();
  std::map<std::string, std::unique_ptr<InputFile>> files;
  for (const FileRecord& f : m.files) files[f.name] = std::make_unique<InputFile>(path + "/" + f.name);
  std::vector<char> bytes;
  for (const TensorRecord& t : m.tensors) {
    if (!wanted(t.life, lives)) continue;
    for (const PieceRecord& p : t.pieces) {
      bytes.resize(size_t(p.bytes));
      files[p.file]->read(p.file_offset, bytes.data(), p.bytes);
      // A second look: the file was whole a moment ago.
      if (xxh3({bytes.data(), size_t(p.bytes)}) != p.digest)
        throw kb::Error("[" + path + "/" + p.file + ": " + t.name +
                            "] changed while it was read; the store is filled in part, so start again",
                        KB_IO);
      put(memory, *memory.store().find(t.name), t, p.global_offset, bytes);
    }
  }
  return m.info;
}

std::string CheckpointFolder::newest(std::vector<std::string>& notices) const {
  const std::vector<FolderEntry> all = read_folder(folder_);
  for (auto e = all.rbegin(); e != all.rend() && e->step >= 0; ++e) {
    const std::string path = folder_ + "/" + e->name;
    try {
      verify_checkpoint(path);
      return path;
    } catch (const kb::Error& error) {
      notices.push_back("checkpoint " + e->name + " is broken and not used: " + error.what());
    }
  }
  return "";
}

std::vector<CheckpointInfo> CheckpointFolder::list(std::vector<std::string>* notices) const {
  std::vector<CheckpointInfo> found;
  for (const FolderEntry& e : read_folder(folder_)) {
    if (e.step < 0) continue;
    try {
      found.push_back(read_manifest(folder_ + "/" + e.name));
    } catch (const kb::Error& error) {
      if (notices) notices->push_back("checkpoint " + e.name + " is broken: " + error.what());
    }
  }
  return found;
}

std::map<std::string, std::string> plugin_identities(const Registry& registry) {
  std::map<std::string, std::string> all;
  for (const auto& p : registry.loaded()) all[p->info->id] = p->info->version + " " + sha256_of_file(p->info->path);
  return all;
}

}  // namespace kitbash
