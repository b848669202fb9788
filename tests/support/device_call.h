// device_call.h: runs one CUDA kernel table as kernel_call.h's run() does on the CPU: operands are copied to the device,
// outputs and workspace are poisoned, extents lie in device memory, and the launch goes to a stream of its own.
#pragma once
#include <cuda_runtime.h>
#ifdef KBTEST_CUBLASLT  // define it before the include where kernels need the handle, and link CUDA::cublasLt
#include <cublasLt.h>
#endif

#include <algorithm>
#include <functional>

#include "tests/support/kernel_call.h"

namespace kbtest {

inline void cuda_ok(cudaError_t e, const char* what) {
  if (e != cudaSuccess) throw kb::Error(kb::text(what, ": ", cudaGetErrorString(e)));
}
#define KB_CUDA_OK(call) ::kbtest::cuda_ok((call), #call)

inline bool have_device() {
  int n = 0;
  const bool got = cudaGetDeviceCount(&n) == cudaSuccess && n > 0;
  if (!got) cudaGetLastError();
  return got;
}
// First line of a test that needs the device.
#define KB_NEEDS_DEVICE() \
  if (!::kbtest::have_device()) GTEST_SKIP() << "there is no CUDA device"

// The process's device: one stream, and the handles that the host gives to kernels.
inline const kb_device& cuda_device() {
  static const kb_device d = [] {
    kb_device x{};
    x.struct_size = KB_STRUCT_SIZE(kb_device, nccl);
    x.kind = KB_CUDA;
    cudaDeviceProp p{};
    KB_CUDA_OK(cudaGetDeviceProperties(&p, 0));
    x.arch = uint32_t(p.major * 10 + p.minor);
    x.threads = 1;
    x.deterministic = 1;
    cudaStream_t s;
    KB_CUDA_OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    x.stream = s;
#ifdef KBTEST_CUBLASLT
    cublasLtHandle_t h;
    if (cublasLtCreate(&h) != CUBLAS_STATUS_SUCCESS) throw kb::Error("cublasLtCreate failed");
    x.cublaslt = h;
#endif
    return x;
  }();
  return d;
}
inline cudaStream_t cuda_stream() { return static_cast<cudaStream_t>(cuda_device().stream); }

// Device memory with 256 poisoned bytes on either side, so that a write outside is found.
class DeviceBytes {
 public:
  static constexpr size_t kGuard = 256;
  explicit DeviceBytes(size_t n) : n_(n) {
    KB_CUDA_OK(cudaMalloc(reinterpret_cast<void**>(&base_), n + 2 * kGuard));
    KB_CUDA_OK(cudaMemset(base_, 0xff, n + 2 * kGuard));
  }
  DeviceBytes(const DeviceBytes&) = delete;
  ~DeviceBytes() { cudaFree(base_); }
  void* data() const { return base_ + kGuard; }
  size_t size() const { return n_; }
  void from(const void* host) const { KB_CUDA_OK(cudaMemcpy(data(), host, n_, cudaMemcpyHostToDevice)); }
  void to(void* host) const { KB_CUDA_OK(cudaMemcpy(host, data(), n_, cudaMemcpyDeviceToHost)); }
  bool guards_intact() const {
    std::vector<unsigned char> g(2 * kGuard);
    KB_CUDA_OK(cudaMemcpy(g.data(), base_, kGuard, cudaMemcpyDeviceToHost));
    KB_CUDA_OK(cudaMemcpy(g.data() + kGuard, base_ + kGuard + n_, kGuard, cudaMemcpyDeviceToHost));
    return std::all_of(g.begin(), g.end(), [](unsigned char c) { return c == 0xff; });
  }

 private:
  char* base_ = nullptr;
  size_t n_;
};

// A kernel with its operands on the device, to be launched as often as wanted.
class DeviceCall {
 public:
  DeviceCall(const kb_kernel* k, const std::vector<kb_attr>& attrs, const std::vector<const Array*>& in,
             const std::vector<Array>& outputs, const Options& o = {})
      : k_(k), attrs_(attrs), options_(o) {
    for (const Array* a : in) {
      void* p = nullptr;
      in_memory_.push_back(nullptr);
      if (a->type.dtype != KB_NONE) {
        memory_.push_back(std::make_unique<DeviceBytes>(a->bytes.size()));
        memory_.back()->from(a->bytes.data());
        p = memory_.back()->data(), in_memory_.back() = memory_.back().get();
      }
      in_.push_back({p, a->type, {}});
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      void* p = nullptr;
      out_memory_.push_back(nullptr);
      if (!(o.unwanted >> i & 1)) {
        for (const auto& [out, in] : o.in_place)
          if (size_t(out) == i) out_memory_.back() = in_memory_[size_t(in)];
        if (!out_memory_.back()) {
          memory_.push_back(std::make_unique<DeviceBytes>(outputs[i].bytes.size()));
          out_memory_.back() = memory_.back().get();
        }
        if (o.accumulate >> i & 1) out_memory_.back()->from(outputs[i].bytes.data());
        p = out_memory_.back()->data();
      }
      out_.push_back({p, outputs[i].type, {}});
    }
    c_.struct_size = KB_STRUCT_SIZE(kb_call, device);
    c_.attr = attrs_.data(), c_.n_attr = uint32_t(attrs_.size());
    c_.in = in_.data(), c_.n_in = uint32_t(in_.size());
    c_.out = out_.data(), c_.n_out = uint32_t(out_.size());
    c_.accumulate = o.accumulate;
    device_.deterministic = o.deterministic;
    c_.device = &device_;
    kb_error e{};
    if (o.ask && k->supports && k->supports(&c_, &e)) throw kb::Error(e.message);
    workspace_ = std::make_unique<DeviceBytes>(k->workspace ? k->workspace(&c_) : 0);
    c_.workspace = workspace_->data();
    if (!o.extents.empty()) {
      memory_.push_back(std::make_unique<DeviceBytes>(o.extents.size() * 4));
      memory_.back()->from(o.extents.data());
      extents_ = static_cast<const int32_t*>(memory_.back()->data());
    }
    if (k->prepare && k->prepare(&c_, &plan_, &e)) throw kb::Error(e.message);
    c_.extents = extents_;
    KB_CUDA_OK(cudaDeviceSynchronize());  // copies and poison are done before another stream touches the memory
  }
  DeviceCall(const DeviceCall&) = delete;
  ~DeviceCall() {
    if (k_->release) k_->release(plan_);
  }
  void launch() {
    kb_error e{};
    if (k_->launch(plan_, &c_, &e)) throw kb::Error(e.message);
  }
  // Waits, and fetches the wanted outputs. Rows past an extent become zeros, as the host makes them.
  void fetch(std::vector<Array>& outputs) const {
    KB_CUDA_OK(cudaStreamSynchronize(cuda_stream()));
    KB_CUDA_OK(cudaGetLastError());
    for (size_t i = 0; i < outputs.size(); ++i)
      if (out_memory_[i]) {
        out_memory_[i]->to(outputs[i].bytes.data());
        if (!out_memory_[i]->guards_intact()) throw kb::Error(kb::text(k_->name, " writes outside of output ", i));
        const kb_type& t = outputs[i].type;
        if (t.extent && t.extent < options_.extents.size() && t.rank > 0 && t.shape[0] > 0) {
          const size_t row = outputs[i].bytes.size() / size_t(t.shape[0]);
          const size_t used = size_t(options_.extents[t.extent]) * row;
          std::fill(outputs[i].bytes.begin() + std::ptrdiff_t(used), outputs[i].bytes.end(), char(0));
        }
      }
    if (!workspace_->guards_intact()) throw kb::Error(kb::text(k_->name, " writes outside of its workspace"));
  }

 private:
  const kb_kernel* k_;
  std::vector<kb_attr> attrs_;
  Options options_;
  kb_device device_ = cuda_device();
  std::vector<std::unique_ptr<DeviceBytes>> memory_;
  std::vector<const DeviceBytes*> in_memory_, out_memory_;
  std::unique_ptr<DeviceBytes> workspace_;
  std::vector<kb_tensor> in_, out_;
  const int32_t* extents_ = nullptr;
  void* plan_ = nullptr;
  kb_call c_{};
};

// As run() of kernel_call.h. Unaccumulated outputs hold NaN bytes before; unwanted ones are left as they are.
inline void run_device(const kb_kernel* k, const std::vector<kb_attr>& attrs, const std::vector<const Array*>& in,
                       std::vector<Array>& outputs, const Options& o = {}) {
  DeviceCall call(k, attrs, in, outputs, o);
  call.launch();
  call.fetch(outputs);
}

// Median milliseconds of f(), which enqueues on cuda_stream(), over `repeats` after `warm_up` calls. With `graph`, f is
// captured `batch` times into one CUDA graph whose launches are timed, which hides the gaps of small launches.
inline double median_ms(const std::function<void()>& f, int repeats = 20, int warm_up = 3, bool graph = false,
                        int batch = 10) {
  const cudaStream_t s = cuda_stream();
  for (int i = 0; i < warm_up; ++i) f();
  KB_CUDA_OK(cudaStreamSynchronize(s));
  cudaGraphExec_t exec = nullptr;
  if (graph) {
    cudaGraph_t g;
    KB_CUDA_OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < batch; ++i) f();
    KB_CUDA_OK(cudaStreamEndCapture(s, &g));
    KB_CUDA_OK(cudaGraphInstantiate(&exec, g, 0));
    KB_CUDA_OK(cudaGraphDestroy(g));
    KB_CUDA_OK(cudaGraphLaunch(exec, s));
  }
  cudaEvent_t a, b;
  KB_CUDA_OK(cudaEventCreate(&a));
  KB_CUDA_OK(cudaEventCreate(&b));
  std::vector<double> ms;
  for (int i = 0; i < repeats; ++i) {
    KB_CUDA_OK(cudaEventRecord(a, s));
    if (exec)
      KB_CUDA_OK(cudaGraphLaunch(exec, s));
    else
      f();
    KB_CUDA_OK(cudaEventRecord(b, s));
    KB_CUDA_OK(cudaEventSynchronize(b));
    float t = 0;
    KB_CUDA_OK(cudaEventElapsedTime(&t, a, b));
    ms.push_back(exec ? t / batch : t);
  }
  cudaEventDestroy(a), cudaEventDestroy(b);
  if (exec) cudaGraphExecDestroy(exec);
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2];
}

}  // namespace kbtest
