// device.h: one opened GPU: its stream, its handles, and what its memory and its recordings need.
#pragma once
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <vector>

#include "kitbash/error.h"

namespace kb::cuda {

// Throws "[cuda] <what> must succeed but got ..." unless e is success. Out of memory is KB_UNSUPPORTED, all else KB_INTERNAL.
void must(cudaError_t e, const char* what);

// Page-locked memory in which uploads wait for their turn, so that the caller's memory is free at once and a copy never
// makes the host wait for the stream. Slots are used in turn; a slot is used again when its last copy is done.
class Staging {
 public:
  static constexpr size_t slot_bytes = size_t(1) << 20;
  static constexpr size_t slots = 32;
  Staging() = default;
  Staging(const Staging&) = delete;
  ~Staging();
  void upload(cudaStream_t s, void* to, const void* host, size_t bytes);

 private:
  char* memory_ = nullptr;
  std::vector<cudaEvent_t> done_;
  size_t next_ = 0;
};

// A graph made from what is enqueued on the stream. Its conditional part is the body of an IF node, which the device enters
// or not by a flag in its own memory: the host neither waits nor decides.
class Recorder {
 public:
  void begin(cudaStream_t s);
  void only_if(cudaStream_t s, const float* flag);
  void always(cudaStream_t s);
  cudaGraphExec_t end(cudaStream_t s);
  void drop(cudaStream_t s) noexcept;

 private:
  cudaGraph_t main_ = nullptr, body_ = nullptr;
  cudaGraphNode_t condition_ = nullptr;
};

struct OpenDevice {
  int number = 0;
  cudaStream_t stream = nullptr;
  cublasLtHandle_t lt = nullptr;
  Staging staging;
  Recorder recorder;
  std::vector<cudaEvent_t> stamps;
  ~OpenDevice();
};
inline OpenDevice& opened(const kb_device* d) { return *static_cast<OpenDevice*>(const_cast<void*>(d->team)); }

const kb_backend* backend_table();

}  // namespace kb::cuda
