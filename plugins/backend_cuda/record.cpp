// Recording: stream capture in up to three parts of one graph. Why an IF node and not copies that look at the flag: after
// step_ok is known the optimiser changes parameters and states in place, so each of its kernels would have to look at the
// flag; a node that is not entered leaves everything as it was, whatever kernels stand in it, and costs nothing when it is.
#include "device.h"
#include "host_cuda.h"

namespace kb::cuda {

namespace {
// Only this thread's calls are looked at: other threads may allocate meanwhile.
constexpr cudaStreamCaptureMode kMode = cudaStreamCaptureModeThreadLocal;
}  // namespace

void Recorder::begin(cudaStream_t s) {
  must(cudaGraphCreate(&main_, 0), "the making of a graph");
  must(cudaStreamBeginCaptureToGraph(s, main_, nullptr, nullptr, 0, kMode), "the start of a recording");
}

void Recorder::only_if(cudaStream_t s, const float* flag) {
  cudaGraphConditionalHandle handle{};
  must(cudaGraphConditionalHandleCreate(&handle, main_, 0, cudaGraphCondAssignDefault), "the making of a condition");
  must(set_condition(handle, flag, s), "the kernel of a condition");
  cudaStreamCaptureStatus status{};
  const cudaGraphNode_t* last = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t n = 0;
  must(cudaStreamGetCaptureInfo(s, &status, nullptr, nullptr, &last, &edges, &n), "the look at what was recorded");
  cudaGraphNodeParams p{};
  p.type = cudaGraphNodeTypeConditional;
  p.conditional.handle = handle;
  p.conditional.type = cudaGraphCondTypeIf;
  p.conditional.size = 1;
  must(cudaGraphAddNode(&condition_, main_, last, edges, n, &p), "an IF node");
  body_ = p.conditional.phGraph_out[0];
  must(cudaStreamUpdateCaptureDependencies(s, &condition_, nullptr, 1, cudaStreamSetCaptureDependencies), "an IF node");
  cudaGraph_t same = nullptr;
  must(cudaStreamEndCapture(s, &same), "the recording of the part before a condition");
  must(cudaStreamBeginCaptureToGraph(s, body_, nullptr, nullptr, 0, kMode), "the start of a recording");
}

void Recorder::always(cudaStream_t s) {
  cudaGraph_t same = nullptr;
  must(cudaStreamEndCapture(s, &same), "the recording of the part under a condition");
  must(cudaStreamBeginCaptureToGraph(s, main_, &condition_, nullptr, 1, kMode), "the rest of a recording");
}

cudaGraphExec_t Recorder::end(cudaStream_t s) {
  cudaGraph_t same = nullptr;
  must(cudaStreamEndCapture(s, &same), "the end of a recording");
  cudaGraphExec_t exec = nullptr;
  const cudaError_t e = cudaGraphInstantiate(&exec, main_, 0);
  cudaGraphDestroy(main_);
  main_ = body_ = nullptr, condition_ = nullptr;
  must(e, "making a recorded graph executable");
  return exec;
}

void Recorder::drop(cudaStream_t s) noexcept {
  cudaStreamCaptureStatus status{};
  if (cudaStreamIsCapturing(s, &status) == cudaSuccess && status != cudaStreamCaptureStatusNone) {
    cudaGraph_t same = nullptr;
    cudaStreamEndCapture(s, &same);
  }
  if (main_) cudaGraphDestroy(main_);
  main_ = body_ = nullptr, condition_ = nullptr;
  cudaGetLastError();
}

}  // namespace kb::cuda
