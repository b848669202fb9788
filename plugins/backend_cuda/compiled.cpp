#include "compiled.h"

#include <algorithm>
#include <deque>
#include <map>
#include <thread>

#include "kernel_cache.h"
#include "kitbash/error.h"
#include "nvrtc_library.h"

namespace kb::cuda {

const void* Code::kernel(const char* name) {
  const std::lock_guard lock(mutex_);
  if (!kernel_) {
    cudaError_t e = cudaLibraryLoadData(&library_, cubin_.data(), nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (e == cudaSuccess) e = cudaLibraryGetKernel(&kernel_, library_, name);
    if (e != cudaSuccess) {
      if (library_) cudaLibraryUnload(library_);
      library_ = nullptr, kernel_ = nullptr;
      fail("[fused] a compiled kernel must load but got ", cudaGetErrorName(e), " (", cudaGetErrorString(e),
           "); remove kitbash/kernels in $XDG_CACHE_HOME or ~/.cache, so that it is compiled again");
    }
  }
  return static_cast<const void*>(kernel_);
}

namespace {

// Threads live while there is something to compile.
class Pool {
 public:
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      waiting_.clear();
    }
    for (std::thread& t : threads_) t.join();
  }
  Compiling start(const std::string& source, uint32_t arch) {
    std::string key = "sm_" + std::to_string(arch) + " nvrtc " + nvrtc_version();
    for (const char* o : nvrtc_options) key += std::string(" ") + o;
    key += "\n" + source;
    const std::lock_guard lock(mutex_);
    if (auto at = known_.find(key); at != known_.end()) return at->second;
    std::packaged_task<std::shared_ptr<Code>()> task([this, key, source, arch] { return make(key, source, arch); });
    Compiling result = task.get_future().share();
    known_.emplace(key, result);
    waiting_.push_back(std::move(task));
    const size_t most = std::max(1u, std::min(16u, std::thread::hardware_concurrency()));
    if (running_ < most) {
      ++running_;
      threads_.emplace_back([this] { drain(); });
    }
    return result;
  }
  CompileCounts counts() {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

 private:
  void drain() {
    for (;;) {
      std::packaged_task<std::shared_ptr<Code>()> task;
      {
        const std::lock_guard lock(mutex_);
        if (waiting_.empty()) {
          --running_;
          return;
        }
        task = std::move(waiting_.front());
        waiting_.pop_front();
      }
      task();
    }
  }
  std::shared_ptr<Code> make(const std::string& key, const std::string& source, uint32_t arch) {
    const KernelCache cache = KernelCache::user();
    if (auto code = cache.find(key)) {
      const std::lock_guard lock(mutex_);
      ++counts_.found;
      return std::make_shared<Code>(std::move(*code));
    }
    std::vector<char> code = nvrtc_compile(source, arch);
    cache.keep(key, code);
    const std::lock_guard lock(mutex_);
    ++counts_.compiled;
    return std::make_shared<Code>(std::move(code));
  }

  std::mutex mutex_;
  std::map<std::string, Compiling> known_;
  std::deque<std::packaged_task<std::shared_ptr<Code>()>> waiting_;
  std::vector<std::thread> threads_;
  size_t running_ = 0;
  CompileCounts counts_;
};
Pool& pool() {
  static Pool p;
  return p;
}

}  // namespace

Compiling compile(const std::string& source, uint32_t arch) { return pool().start(source, arch); }
CompileCounts compile_counts() { return pool().counts(); }

}  // namespace kb::cuda
