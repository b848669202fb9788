// kernels.h: the CPU kernels of `kda` and `kda_backward`, float and double. README.md says when each is chosen.
#pragma once
#include "kda_op.h"

namespace kda {

struct Recurrent {  // token by token; any decay, any length
  using Op = KdaOp;
  static constexpr const char* name = "recurrent";
  static constexpr uint32_t device = KB_CPU;
  static constexpr int32_t priority = 0;
  static void supports(const kb::Call& c, const Op&);
  static int64_t workspace(const kb::Call& c, const Op&);
  static void launch(const kb::Call& c, const Op&);
};
struct Chunk {  // chunks of sixteen tokens, dense tiles; decays of which sixteen stay above exp(-80)
  using Op = KdaOp;
  static constexpr const char* name = "chunk";
  static constexpr uint32_t device = KB_CPU;
  static constexpr int32_t priority = 20;
  static void supports(const kb::Call& c, const Op&);
  static int64_t workspace(const kb::Call& c, const Op&);
  static void launch(const kb::Call& c, const Op&);
};
struct ChunkRescaled {  // the same for any decay
  using Op = KdaOp;
  static constexpr const char* name = "chunk-rescaled";
  static constexpr uint32_t device = KB_CPU;
  static constexpr int32_t priority = 10;
  static void supports(const kb::Call& c, const Op&);
  static int64_t workspace(const kb::Call& c, const Op&);
  static void launch(const kb::Call& c, const Op&);
};
struct ChunkBackward {
  using Op = KdaBackwardOp;
  static constexpr const char* name = "chunk";
  static constexpr uint32_t device = KB_CPU;
  static constexpr int32_t priority = 20;
  static void supports(const kb::Call& c, const Op&);
  static int64_t workspace(const kb::Call& c, const Op&);
  static void launch(const kb::Call& c, const Op&);
};
struct ChunkRescaledBackward {
  using Op = KdaBackwardOp;
  static constexpr const char* name = "chunk-rescaled";
  static constexpr uint32_t device = KB_CPU;
  static constexpr int32_t priority = 10;
  static void supports(const kb::Call& c, const Op&);
  static int64_t workspace(const kb::Call& c, const Op&);
  static void launch(const kb::Call& c, const Op&);
};

// Declines types that the CPU has no kernel for, and for the dense kernels decays that leave the range of float.
inline void wants_floats(const kb::Call& c) {
  const uint32_t t = c.in(kQ).dtype;
  if (t != KB_F32 && t != KB_F64) kb::fail("wants f32 or f64 but got ", kb::dtype_name(t));
}
inline void wants_mild_decay(const kb::Call& c) {
  const kb_type& g = c.in(kG);
  if (!(g.lo >= -5)) kb::fail("wants a log decay of at least -5 (80 / 16 tokens) but the decay gives down to ", g.lo);
  if (!(g.hi <= 0)) kb::fail("wants a log decay of at most 0 but the decay gives up to ", g.hi);
}

}  // namespace kda
