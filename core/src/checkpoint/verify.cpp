#include "checkpoint/verify.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/safetensors.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/read.h"
#include "kitbash/error.h"

namespace kitbash {
namespace {

constexpr int64_t kChunk = 1 << 20;

struct PlacedPiece {
  const TensorRecord* tensor;
  const PieceRecord* piece;
};

Digest digest_of(const InputFile& f, int64_t offset, int64_t bytes, std::vector<char>& buffer) {
  Xxh3 h;
  while (bytes > 0) {
    const int64_t n = std::min(kChunk, bytes);
    f.read(offset, buffer.data(), n);
    h.add(buffer.data(), size_t(n));
    offset += n, bytes -= n;
  }
  return h.digest();
}

// The file's checksum is wrong: which of its tensors are?
[[noreturn]] void name_damage(const InputFile& f, const std::vector<PlacedPiece>& pieces, std::vector<char>& buffer) {
  std::string first;
  int64_t more = 0;
  for (const PlacedPiece& p : pieces) {
    if (digest_of(f, p.piece->file_offset, p.piece->bytes, buffer) == p.piece->digest) continue;
    if (first.empty())
      first = p.tensor->name;
    else
      ++more;
  }
  if (first.empty()) kb::fail("[", f.path(), "] its header differs from its checksum; the file has been damaged");
  kb::fail("[", f.path(), ": ", first, "] the data differs from its checksum",
           more ? kb::text(", and so does that of ", more, " more tensors") : "", "; the file has been damaged");
}

// Sizes and bytes against the manifest.
void check_bytes(const std::string& folder, const FileRecord& r, const std::vector<PlacedPiece>& pieces) {
  const InputFile f(folder + "/" + r.name);
  if (f.bytes() != r.bytes)
    kb::fail("[", f.path(), "] must have ", r.bytes, " bytes but has ", f.bytes(),
             f.bytes() < r.bytes ? "; it is cut short" : "");
  std::vector<char> buffer(static_cast<size_t>(kChunk));
  if (digest_of(f, 0, f.bytes(), buffer) != r.digest) name_damage(f, pieces, buffer);
}

// The file's own header against the manifest: each tensor of the one is a piece of the other, at the same place.
void check_header(const std::string& folder, const FileRecord& r, const std::vector<PlacedPiece>& pieces) {
  const SafetensorsFile f = SafetensorsFile::open(folder + "/" + r.name);
  const int64_t data_bytes = [&] {
    uint64_t end = 0;
    for (const auto& [unused, t] : f.tensors()) end = std::max(end, t.end);
    return int64_t(end);
  }();
  std::set<std::string> keys;
  for (const PlacedPiece& p : pieces) {
    const std::string where = "[" + f.path() + ": " + p.piece->key + "]";
    if (!keys.insert(p.piece->key).second) kb::fail(where, " is named twice by the manifest");
    const SafeTensor* t = f.find(p.piece->key);
    if (!t) kb::fail(where, " is in the manifest but not in the file");
    if (t->dtype != safetensors_dtype(p.tensor->dtype))
      kb::fail(where, " must be ", safetensors_dtype(p.tensor->dtype), " by the manifest but is ", t->dtype);
    std::vector<int64_t> shape = p.tensor->shape;
    if (p.tensor->pieces.size() > 1 && !shape.empty() && !t->shape.empty()) shape[0] = t->shape[0];  // rows of it
    if (t->shape != shape) kb::fail(where, " must have the shape of ", record_text(*p.tensor), " but has another");
    if (int64_t(t->begin) + (r.bytes - data_bytes) != p.piece->file_offset ||
        int64_t(t->end - t->begin) != p.piece->bytes)
      kb::fail(where, " lies elsewhere than the manifest says");
  }
  for (const auto& [key, unused] : f.tensors())
    if (!keys.count(key)) kb::fail("[", f.path(), ": ", key, "] is in the file but not in the manifest");
}

}  // namespace

Manifest verified_manifest(const std::string& path) {
  Manifest m = open_manifest(path);
  std::map<std::string, std::vector<PlacedPiece>> by_file;
  for (const TensorRecord& t : m.tensors)
    for (const PieceRecord& p : t.pieces) by_file[p.file].push_back({&t, &p});
  for (const FileRecord& f : m.files) check_bytes(path, f, by_file[f.name]);
  for (const FileRecord& f : m.files) check_header(path, f, by_file[f.name]);
  return m;
}

CheckpointInfo read_manifest(const std::string& path) { return open_manifest(path).info; }
void verify_checkpoint(const std::string& path) { verified_manifest(path); }

}  // namespace kitbash
