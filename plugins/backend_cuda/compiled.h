// compiled.h: kernels that are compiled while the program is prepared: each source once in a process, several at a time, and
// once for all processes where the disk keeps it.
#pragma once
#include <cuda_runtime_api.h>

#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace kb::cuda {

class Code {
 public:
  explicit Code(std::vector<char> cubin) : cubin_(std::move(cubin)) {}
  Code(const Code&) = delete;
  const void* kernel(const char* name);  // loads it into the device on first use
  size_t bytes() const { return cubin_.size(); }

 private:
  std::vector<char> cubin_;
  std::mutex mutex_;
  cudaLibrary_t library_ = nullptr;
  cudaKernel_t kernel_ = nullptr;
};
using Compiling = std::shared_future<std::shared_ptr<Code>>;

// Starts the compilation, unless it was started before. get() throws what the compiler says.
Compiling compile(const std::string& source, uint32_t arch);

struct CompileCounts {
  int compiled = 0, found = 0;  // found: on disk
};
CompileCounts compile_counts();

}  // namespace kb::cuda
