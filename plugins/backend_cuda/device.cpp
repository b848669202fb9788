// Opening the GPU, its memory, and copies. Every function of the kb_backend table is here or in record.cpp.
#include "device.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "host_cuda.h"

namespace kb::cuda {

void must(cudaError_t e, const char* what) {
  if (e == cudaSuccess) return;
  cudaGetLastError();  // an error that the context survives must not be told again by the next call
  const bool memory = e == cudaErrorMemoryAllocation;
  throw Error(text("[cuda] ", what, " must succeed but got ", cudaGetErrorName(e), " (", cudaGetErrorString(e), "); ",
                   memory ? "free memory on the GPU"
                          : "a kernel before it may be the cause: run again with --no-capture and KITBASH_TRACE=1 in "
                            "the environment to see which"),
              memory ? KB_UNSUPPORTED : KB_INTERNAL);
}

Staging::~Staging() {
  for (cudaEvent_t e : done_) cudaEventDestroy(e);
  if (memory_) cudaFreeHost(memory_);
}

void Staging::upload(cudaStream_t s, void* to, const void* host, size_t bytes) {
  if (!memory_) {
    must(cudaMallocHost(reinterpret_cast<void**>(&memory_), slot_bytes * slots),
         "the allocation of page-locked memory for uploads");
    done_.resize(slots);
    for (cudaEvent_t& e : done_) must(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "an event");
  }
  for (size_t at = 0; at < bytes; at += slot_bytes) {
    const size_t n = std::min(slot_bytes, bytes - at), slot = next_++ % slots;
    if (next_ > slots) must(cudaEventSynchronize(done_[slot]), "the wait for an upload");
    std::memcpy(memory_ + slot * slot_bytes, static_cast<const char*>(host) + at, n);
    must(cudaMemcpyAsync(static_cast<char*>(to) + at, memory_ + slot * slot_bytes, n, cudaMemcpyHostToDevice, s),
         "an upload");
    must(cudaEventRecord(done_[slot], s), "an event");
  }
}

OpenDevice::~OpenDevice() {
  if (stream) cudaStreamSynchronize(stream);
  for (cudaEvent_t e : stamps) cudaEventDestroy(e);
  if (lt) cublasLtDestroy(lt);
  if (stream) cudaStreamDestroy(stream);
}

namespace {

std::string version_text(int v) { return text(v / 1000, ".", v % 1000 / 10); }

// The GPU to use: number 0 of those that CUDA_VISIBLE_DEVICES leaves. Says in words why there is none.
int find_device() {
  constexpr const char* instead = ", or use --device cpu";
  int driver = 0, count = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
    throw Error(text("[cuda] an NVIDIA driver must be installed, but none is found (libcuda.so.1); install one that "
                     "supports CUDA ",
                     version_text(CUDART_VERSION), instead),
                KB_UNSUPPORTED);
  const cudaError_t e = cudaGetDeviceCount(&count);
  if (e == cudaErrorInsufficientDriver)
    throw Error(text("[cuda] the NVIDIA driver must support CUDA ", version_text(CUDART_VERSION), " but supports ",
                     version_text(driver), "; update it", instead),
                KB_UNSUPPORTED);
  if (e == cudaErrorNoDevice || (e == cudaSuccess && count == 0)) {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    throw Error(
        text("[cuda] a GPU must be visible, but the driver sees none", visible ? " (CUDA_VISIBLE_DEVICES is '" : "",
             visible ? visible : "", visible ? "')" : "", "; make one visible", instead),
        KB_UNSUPPORTED);
  }
  must(e, "the count of GPUs");
  cudaDeviceProp p{};
  must(cudaGetDeviceProperties(&p, 0), "the look at the GPU's properties");
  // The kernels use instructions (wgmma, TMA) of exactly this architecture, for which no other can stand in.
  if (p.major != 9 || p.minor != 0)
    throw Error(text("[cuda] the GPU must have compute capability 9.0 (Hopper), for which the kernels are built, but ",
                     p.name, " has ", p.major, ".", p.minor, "; choose another with CUDA_VISIBLE_DEVICES", instead),
                KB_UNSUPPORTED);
  return 0;
}

int open_device(int32_t, kb_device* out, kb_error* e) {
  return guard("backend-cuda open", e, [&] {
    auto d = std::make_unique<OpenDevice>();
    d->number = find_device();
    must(cudaSetDevice(d->number), "the choice of the GPU");
    must(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking), "the making of a stream");
    if (const cublasStatus_t s = cublasLtCreate(&d->lt); s != CUBLAS_STATUS_SUCCESS)
      throw Error(text("[cuda] cuBLASLt cannot be started: ", cublasLtGetStatusString(s)), KB_INTERNAL);
    out->kind = KB_CUDA;
    out->arch = 90;
    out->threads = 1;
    out->deterministic = 1;
    out->parallel = nullptr;
    out->stream = d->stream;
    out->cublaslt = d->lt;
    out->cublas = out->cudnn = out->nccl = nullptr;
    out->team = d.release();
  });
}

void close_device(kb_device* d) {
  delete &opened(d);
  d->team = d->stream = d->cublaslt = nullptr;
}

int memory(const kb_device* d, uint64_t* free, uint64_t* total, kb_error* e) {
  return guard("memory", e, [&] {
    must(cudaSetDevice(opened(d).number), "the choice of the GPU");
    size_t f = 0, t = 0;
    must(cudaMemGetInfo(&f, &t), "the look at free memory");
    *free = f, *total = t;
  });
}

int alloc(const kb_device* d, uint64_t bytes, void** out, kb_error* e) {
  return guard("alloc", e, [&] {
    must(cudaSetDevice(opened(d).number), "the choice of the GPU");
    if (const cudaError_t r = cudaMalloc(out, std::max<uint64_t>(bytes, 1)); r != cudaSuccess) {
      cudaGetLastError();
      size_t free = 0, total = 0;
      cudaMemGetInfo(&free, &total);
      throw Error(text("[cuda] ", bytes, " bytes must be free on the GPU but ", free, " of ", total, " are (",
                       cudaGetErrorString(r), ")"),
                  r == cudaErrorMemoryAllocation ? KB_UNSUPPORTED : KB_INTERNAL);
    }
  });
}

void release(const kb_device* d, void* p) {
  cudaStreamSynchronize(opened(d).stream);
  cudaFree(p);
}

int upload(const kb_device* d, void* to, const void* host, uint64_t bytes, kb_error* e) {
  return guard("upload", e, [&] { opened(d).staging.upload(opened(d).stream, to, host, bytes); });
}

int download(const kb_device* d, void* host, const void* from, uint64_t bytes, kb_error* e) {
  return guard("download", e, [&] {
    must(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, opened(d).stream), "a download");
    must(cudaStreamSynchronize(opened(d).stream), "a download");
  });
}

int copy(const kb_device* d, void* to, const void* from, uint64_t bytes, kb_error* e) {
  return guard("copy", e,
               [&] { must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, opened(d).stream), "a copy"); });
}

int fill(const kb_device* d, void* to, uint64_t n, uint32_t width, const void* host, kb_error* e) {
  return guard("fill", e, [&] {
    uint64_t pattern = 0;
    std::memcpy(&pattern, host, width);
    must(fill_pattern(to, n, width, pattern, opened(d).stream), "a fill");
  });
}

int clear(const kb_device* d, void* data, uint64_t rows, uint64_t row_bytes, const int32_t* used, kb_error* e) {
  return guard("clear_tail", e,
               [&] { must(clear_tail(data, rows, row_bytes, used, opened(d).stream), "a clear_tail"); });
}

int wait(const kb_device* d, kb_error* e) {
  return guard("wait", e, [&] { must(cudaStreamSynchronize(opened(d).stream), "the wait for kernels"); });
}

int stamp(const kb_device* d, uint32_t index, kb_error* e) {
  return guard("stamp", e, [&] {
    auto& all = opened(d).stamps;
    if (index >= 65536) fail("[cuda] a stamp must be below 65536 but is ", index);
    while (all.size() <= index) {
      all.push_back(nullptr);
      must(cudaEventCreate(&all.back()), "an event");
    }
    must(cudaEventRecord(all[index], opened(d).stream), "an event");
  });
}

int elapsed(const kb_device* d, uint32_t from, uint32_t to, double* seconds, kb_error* e) {
  return guard("elapsed", e, [&] {
    const auto& all = opened(d).stamps;
    if (from >= all.size() || to >= all.size()) fail("[cuda] there is no stamp ", std::max(from, to));
    float ms = 0;
    must(cudaEventSynchronize(all[to]), "the wait for kernels");
    must(cudaEventElapsedTime(&ms, all[from], all[to]), "the look at elapsed time");
    *seconds = double(ms) * 1e-3;
  });
}

int record(const kb_device* d, kb_error* e) {
  return guard("record", e, [&] { opened(d).recorder.begin(opened(d).stream); });
}
int only_if(const kb_device* d, const float* flag, kb_error* e) {
  return guard("only_if", e, [&] { opened(d).recorder.only_if(opened(d).stream, flag); });
}
int always(const kb_device* d, kb_error* e) {
  return guard("always", e, [&] { opened(d).recorder.always(opened(d).stream); });
}
int recorded(const kb_device* d, void** graph, kb_error* e) {
  return guard("recorded", e, [&] {
    if (graph)
      *graph = opened(d).recorder.end(opened(d).stream);
    else
      opened(d).recorder.drop(opened(d).stream);
  });
}
int replay(const kb_device* d, void* graph, kb_error* e) {
  return guard("replay", e, [&] {
    must(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), opened(d).stream), "the launch of a graph");
  });
}
void discard(const kb_device* d, void* graph) {
  cudaStreamSynchronize(opened(d).stream);
  cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
}

}  // namespace

const kb_backend* backend_table() {
  static const kb_backend t{KB_STRUCT_SIZE(kb_backend, discard),
                            KB_CUDA,
                            open_device,
                            close_device,
                            memory,
                            alloc,
                            release,
                            upload,
                            download,
                            copy,
                            fill,
                            clear,
                            wait,
                            stamp,
                            elapsed,
                            record,
                            only_if,
                            always,
                            recorded,
                            replay,
                            discard};
  return &t;
}

}  // namespace kb::cuda
