// conv_cuda.h: launchers of the causal depthwise convolution over packed documents (../backend_cpu/conv.h states the
// rule).
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace kb::cuda::element {

struct Documents {
  const int32_t* cu;      // [bound + 1], device
  int64_t bound;          // documents at most
  const int32_t* in_use;  // how many entries of cu count; NULL: all
};
struct ConvSizes {
  int64_t tokens, channels, taps;
  uint32_t dtype, w_type;  // of x, y and the state; of w
};
struct ConvState {  // at NULL: zeros before every document
  const void* at;   // [slots, taps - 1, channels]
  const int32_t* slot;
  int64_t slots;
};
// y: zeros past the last document. A slot out of range makes its document's first rows NaN.
void short_conv(const ConvSizes& z, const Documents& d, const void* x, const void* w, const ConvState& state, void* y,
                cudaStream_t s);
// The last taps - 1 inputs of every document move into `state`, in place.
void conv_state(const ConvSizes& z, const Documents& d, const void* x, const ConvState& state, void* now,
                cudaStream_t s);

// dx or part may be NULL: not wanted. part [conv_parts, channels, taps]: partial sums of dw over pieces of the tokens.
int64_t conv_parts(const ConvSizes& z);
void short_conv_backward(const ConvSizes& z, const Documents& d, const void* x, const void* w, const void* dy, void* dx,
                         float* part, cudaStream_t s);

}  // namespace kb::cuda::element
