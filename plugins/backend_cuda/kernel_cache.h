// kernel_cache.h: compiled kernels on disk, in $XDG_CACHE_HOME/kitbash/kernels or ~/.cache/kitbash/kernels, by content. A file
// holds what it was compiled from and is used for nothing else; a broken or foreign one is as if it were not there.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace kb::cuda {

class KernelCache {
 public:
  explicit KernelCache(std::string folder) : folder_(std::move(folder)) {}
  static KernelCache user();  // of this user; keeps nothing where there is no home

  // key: source, options, compiler, architecture.
  std::optional<std::vector<char>> find(const std::string& key) const;
  void keep(const std::string& key, const std::vector<char>& code) const noexcept;
  std::string file(const std::string& key) const;

 private:
  std::string folder_;  // empty: none
};

}  // namespace kb::cuda
