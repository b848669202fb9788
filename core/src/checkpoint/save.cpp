// The order of operations is the promise: data synced, then the manifest, then the rename, then `latest`, then removal.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "base/number.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/file_ops.h"
#include "checkpoint/folder.h"
#include "checkpoint/shards.h"
#include "kitbash/error.h"

namespace kitbash {
namespace {

constexpr int64_t kChunk = 256 << 10;  // hashed twice and written while it is in the cache
constexpr int64_t kFetch = 64 << 20;   // copied from the device at once

bool full(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

std::string utc_now() {
  const std::time_t t = std::time(nullptr);
  std::tm tm{};
  gmtime_r(&t, &tm);
  char s[40];
  std::strftime(s, sizeof s, "%Y-%m-%dT%H:%M:%SZ", &tm);
  return s;
}

class Saver {
 public:
  Saver(FileOps& ops, std::string folder, const StoreMemory& memory)
      : ops_(ops), folder_(std::move(folder)), memory_(memory) {}

  void make_folder() {
    std::string at;
    for (const auto& part : std::filesystem::path(folder_)) {
      at = (std::filesystem::path(at) / part).string();
      std::error_code e;
      if (at.empty() || std::filesystem::is_directory(at, e)) continue;
      check(ops_.make_folder(at), at, "made");
      const std::string above = std::filesystem::path(at).parent_path().string();
      check(ops_.sync_folder(above.empty() ? "." : above), above, "synced");
    }
  }

  void remove_stale() {
    for (const FolderEntry& e : read_folder(folder_))
      if (e.unfinished) remove_tree(folder_ + "/" + e.name);
  }

  void check_space(int64_t needed) {
    needed_ = needed;
    const int64_t room = ops_.free_bytes(folder_);
    if (room >= 0 && room < needed) no_space(folder_, room);
  }

  void write_all(const ShardPlan& plan, Manifest& m, const std::string& tmp) {
    check(ops_.make_folder(tmp), tmp, "made");
    for (const Shard& s : plan.shards) write_shard(s, m, tmp);
    const std::string bytes = encode_manifest(m);
    write_text(tmp + "/" + kManifestFile, bytes);
    write_text(tmp + "/" + kManifestSum, manifest_sum(bytes));
    check(ops_.sync_folder(tmp), tmp, "synced");
  }

  void publish(const std::string& tmp, const std::string& path) {
    std::error_code e;
    if (!std::filesystem::exists(path, e)) {
      check(ops_.rename(tmp, path), tmp, "renamed to " + path);
    } else {  // the same step again: both change places at once, so that there is always one
      check(ops_.exchange(tmp, path), tmp, "exchanged with " + path);
    }
    check(ops_.sync_folder(folder_), folder_, "synced");
  }

  void point_latest(const std::string& name) {
    const std::string tmp = folder_ + "/latest.tmp", path = folder_ + "/latest";
    write_text(tmp, name + "\n");
    check(ops_.rename(tmp, path), tmp, "renamed to " + path);
    check(ops_.sync_folder(folder_), folder_, "synced");
  }

  void set_aside(const std::string& name) {
    const std::string from = folder_ + "/" + name, to = from + ".left";
    if (std::filesystem::exists(to)) remove_tree(to);
    check(ops_.rename(from, to), from, "renamed to " + to);
  }

  // Renamed first, so that a removal which breaks off leaves no checkpoint with holes.
  void retire(const std::string& name) {
    const std::string from = folder_ + "/" + name, to = from + ".tmp";
    check(ops_.rename(from, to), from, "renamed to " + to);
    remove_tree(to);
  }

  void remove_tree(const std::string& path) {
    std::error_code e;
    if (!std::filesystem::is_directory(std::filesystem::symlink_status(path, e))) {
      check(ops_.remove(path), path, "removed");
      return;
    }
    for (const std::string& name : names_in(path)) remove_tree(path + "/" + name);
    check(ops_.remove_folder(path), path, "removed");
  }

  void try_remove_tree(const std::string& path) noexcept {
    try {
      std::error_code e;
      if (std::filesystem::exists(std::filesystem::symlink_status(path, e))) remove_tree(path);
    } catch (const std::exception&) {  // the next save tries again; the first error is the one to tell
    }
  }

 private:
  void check(int rc, const std::string& path, const std::string& what) {
    if (rc == 0) return;
    const int why = errno;
    if (full(why)) no_space(path, ops_.free_bytes(folder_));
    throw kb::Error("[" + path + "] cannot be " + what + ": " + std::strerror(why), KB_IO);
  }
  [[noreturn]] void no_space(const std::string& path, int64_t room) {
    throw kb::Error(kb::text("[", path, "] the checkpoint needs ", needed_, " bytes (", human_bytes(double(needed_)),
                             ") but the disk has ", room, " free (", human_bytes(double(std::max<int64_t>(room, 0))),
                             "); make room, or write elsewhere. Earlier checkpoints are as they were"),
                    KB_IO);
  }

  void put(int fd, const std::string& path, const char* data, int64_t bytes) {
    while (bytes > 0) {
      const ssize_t n = ops_.write(fd, data, size_t(bytes));
      if (n < 0 && errno == EINTR) continue;
      if (n == 0) errno = EIO;
      check(n <= 0 ? -1 : 0, path, "written");
      data += n, bytes -= n;
    }
  }
  template <class F>
  void write_file(const std::string& path, F&& fill) {
    const int fd = ops_.create(path);
    check(fd < 0 ? -1 : 0, path, "created");
    try {
      fill(fd);
      check(ops_.sync(fd), path, "synced");
    } catch (...) {
      ops_.close(fd);
      throw;
    }
    check(ops_.close(fd), path, "closed");
  }
  void write_text(const std::string& path, const std::string& text) {
    write_file(path, [&](int fd) { put(fd, path, text.data(), int64_t(text.size())); });
  }
  void write_shard(const Shard& s, Manifest& m, const std::string& tmp) {
    const std::string path = tmp + "/" + s.name;
    Xxh3 whole;
    write_file(path, [&](int fd) {
      put(fd, path, s.header.data(), int64_t(s.header.size()));
      whole.add(s.header.data(), s.header.size());
      for (const ShardPiece& p : s.pieces) {
        Xxh3 own;
        for (int64_t from = 0; from < p.record.bytes; from += kFetch) {
          const int64_t part = std::min(kFetch, p.record.bytes - from);
          const char* data = memory_.view(p.source, p.offset + from, part, room_);
          for (int64_t at = 0; at < part; at += kChunk) {
            const int64_t n = std::min(kChunk, part - at);
            own.add(data + at, size_t(n));
            whole.add(data + at, size_t(n));
            put(fd, path, data + at, n);
          }
        }
        m.tensors[p.tensor].pieces.push_back(p.record);
        m.tensors[p.tensor].pieces.back().digest = own.digest();
      }
    });
    m.files.push_back({s.name, s.bytes, whole.digest()});
  }

  FileOps& ops_;
  std::string folder_;
  const StoreMemory& memory_;
  std::vector<char> room_;
  int64_t needed_ = 0;
};

}  // namespace

CheckpointFolder::CheckpointFolder(std::string folder, int keep, SaveOptions options)
    : folder_(std::move(folder)), keep_(keep), options_(options) {
  if (keep_ < 1) kb::fail("[checkpoint] at least 1 checkpoint must be kept but got ", keep_);
  if (options_.shard_bytes < 1)
    kb::fail("[checkpoint] a shard must have at least 1 byte but got ", options_.shard_bytes);
}

std::string CheckpointFolder::save(const StoreMemory& memory, const CheckpointInfo& info,
                                   std::vector<std::string>* notices) {
  const int64_t step = info.position.step;
  if (step < 0) kb::fail("[checkpoint] the step must not be negative but is ", step);
  Saver saver(options_.files ? *options_.files : system_files(), folder_, memory);
  const std::string name = step_name(step), path = folder_ + "/" + name, tmp = path + ".tmp";

  Manifest m;
  m.info = info;
  m.info.kitbash = KITBASH_VERSION;
  m.info.written = utc_now();
  const ShardPlan plan = plan_shards(memory, options_.shard_bytes, "kitbash " KITBASH_VERSION, step);
  m.tensors = plan.tensors;

  saver.make_folder();
  saver.remove_stale();
  // The manifest grows by its pieces (names, offsets, a digest) while shards are written; this is more than they take.
  int64_t needed = plan.bytes() + int64_t(encode_manifest(m).size()) + 4096;
  for (const Shard& s : plan.shards) {
    needed += 4096;  // its last block
    for (const ShardPiece& p : s.pieces) needed += int64_t(p.record.key.size()) + 128;
  }
  saver.check_space(needed);
  try {
    saver.write_all(plan, m, tmp);
    saver.publish(tmp, path);
  } catch (...) {
    saver.try_remove_tree(tmp);
    throw;
  }

  // From here on the checkpoint is there and durable.
  auto afterwards = [&](auto&& work) {
    try {
      work();
    } catch (const kb::Error& e) {
      const std::string text = std::string(e.what()) + " (" + path + " itself is saved)";
      if (!notices) throw kb::Error(text, e.code);
      notices->push_back(text);
    }
  };
  afterwards([&] { saver.point_latest(name); });
  afterwards([&] {
    if (std::filesystem::exists(tmp)) saver.remove_tree(tmp);  // after an exchange: what had this step before
    std::vector<FolderEntry> older;
    for (const FolderEntry& e : read_folder(folder_)) {
      if (e.step > step) saver.set_aside(e.name);
      if (e.step >= 0 && e.step < step) older.push_back(e);
    }
    for (size_t i = 0; i + size_t(keep_ - 1) < older.size(); ++i) saver.retire(older[i].name);
  });
  return path;
}

}  // namespace kitbash
