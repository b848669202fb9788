// attention_call.h: a call of the op as arguments of the launchers.
#pragma once
#include "attention_cuda.h"
#include "kitbash/op.h"
#include "kitbash/ops.h"

namespace kb::cuda {

inline cudaStream_t stream_of(const Call& c) { return static_cast<cudaStream_t>(c.c->device->stream); }

inline AttentionShape attention_shape(const Call& c, double scale, bool causal) {
  return {c.dim(0, 0), c.dim(3, 0) - 1, c.dim(0, 1), c.dim(1, 1), c.dim(0, 2), c.dim(2, 2), causal, float(scale)};
}
inline AttentionForwardArgs forward_args(const Call& c, const ops::Attention& op) {
  return {attention_shape(c, op.scale, op.causal),
          c.get<void>(0),
          c.get<void>(1),
          c.get<void>(2),
          c.get<int32_t>(3),
          c.put<void>(0),
          c.put<float>(1),
          c.put<float>(2),
          c.c->workspace};
}
inline AttentionBackwardArgs backward_args(const Call& c, const ops::AttentionBackward& op) {
  return {attention_shape(c, op.scale, op.causal),
          c.get<void>(0),
          c.get<void>(1),
          c.get<void>(2),
          c.get<int32_t>(3),
          c.get<void>(4),
          c.get<float>(5),
          c.get<void>(6),
          c.put<void>(0),
          c.put<void>(1),
          c.put<void>(2),
          c.c->workspace};
}

}  // namespace kb::cuda
