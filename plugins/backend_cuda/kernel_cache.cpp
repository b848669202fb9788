#include "kernel_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace kb::cuda {

namespace {

constexpr char kMagic[8] = {'k', 'b', 'k', 'e', 'r', 'n', '1', '\n'};

uint64_t mixed(const char* p, size_t n, uint64_t h) {  // FNV-1a
  for (size_t i = 0; i < n; ++i) h = (h ^ uint64_t(static_cast<unsigned char>(p[i]))) * 0x100000001b3u;
  return h;
}
struct Header {
  char magic[8];
  uint64_t key_bytes, code_bytes, check;  // check: of the code
};

// Code that others could have written must not run.
bool own(const std::string& path) {
  struct stat s {};
  return ::stat(path.c_str(), &s) == 0 && s.st_uid == ::geteuid() && !(s.st_mode & (S_IWGRP | S_IWOTH));
}

}  // namespace

KernelCache KernelCache::user() {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (cache && cache[0] == '/') return KernelCache(std::string(cache) + "/kitbash/kernels");
  if (home && home[0] == '/') return KernelCache(std::string(home) + "/.cache/kitbash/kernels");
  return KernelCache("");
}

std::string KernelCache::file(const std::string& key) const {
  char name[40];
  std::snprintf(name, sizeof name, "%016llx%016llx",
                static_cast<unsigned long long>(mixed(key.data(), key.size(), 0xcbf29ce484222325u)),
                static_cast<unsigned long long>(mixed(key.data(), key.size(), 0x9ae16a3b2f90404fu)));
  return folder_ + "/" + name;
}

std::optional<std::vector<char>> KernelCache::find(const std::string& key) const {
  if (folder_.empty() || !own(folder_)) return std::nullopt;
  const std::string path = file(key);
  std::ifstream f(path, std::ios::binary);
  if (!f || !own(path)) return std::nullopt;
  Header h{};
  f.read(reinterpret_cast<char*>(&h), sizeof h);
  std::error_code e;
  const auto size = std::filesystem::file_size(path, e);
  if (!f || e || std::memcmp(h.magic, kMagic, 8) != 0 || h.key_bytes != key.size() || h.code_bytes > size ||
      sizeof h + h.key_bytes + h.code_bytes != size)
    return std::nullopt;
  std::string held(key.size(), 0);
  std::vector<char> code(h.code_bytes);
  f.read(held.data(), std::streamsize(held.size()));
  f.read(code.data(), std::streamsize(code.size()));
  if (!f || held != key || mixed(code.data(), code.size(), 1) != h.check) return std::nullopt;
  return code;
}

void KernelCache::keep(const std::string& key, const std::vector<char>& code) const noexcept {
  if (folder_.empty()) return;
  try {
    std::filesystem::create_directories(folder_);
    ::chmod(folder_.c_str(), 0700);
    static std::atomic<unsigned> count{0};
    const std::string path = file(key), part = path + "." + std::to_string(::getpid()) + "." + std::to_string(count++);
    {
      Header h{};
      std::memcpy(h.magic, kMagic, 8);
      h.key_bytes = key.size(), h.code_bytes = code.size(), h.check = mixed(code.data(), code.size(), 1);
      std::ofstream f(part, std::ios::binary | std::ios::trunc);
      f.write(reinterpret_cast<const char*>(&h), sizeof h);
      f.write(key.data(), std::streamsize(key.size()));
      f.write(code.data(), std::streamsize(code.size()));
      if (!f.flush()) {
        f.close();
        ::unlink(part.c_str());
        return;
      }
    }
    ::chmod(part.c_str(), 0600);
    if (std::rename(part.c_str(), path.c_str()) != 0) ::unlink(part.c_str());  // readers see all of it or nothing
  } catch (...) {  // a full disk costs the next start its time, nothing else
  }
}

}  // namespace kb::cuda
