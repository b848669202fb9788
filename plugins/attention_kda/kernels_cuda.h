// kernels_cuda.h: the CUDA kernels of `kda` and `kda_backward`, float and bf16. README.md says when each is chosen.
#pragma once
#include "kda_op.h"
#include "problem_cuda.h"

namespace kda::cuda {

struct Recurrent {  // token by token; any decay, any length
  using Op = KdaOp;
  static constexpr const char* name = "recurrent";
  static constexpr uint32_t device = KB_CUDA;
  static constexpr int32_t priority = 0;
  static void supports(const kb::Call& c, const Op&);
  static void launch(const kb::Call& c, const Op&);
};
struct RecurrentBackward {
  using Op = KdaBackwardOp;
  static constexpr const char* name = "recurrent";
  static constexpr uint32_t device = KB_CUDA;
  static constexpr int32_t priority = 0;
  static void supports(const kb::Call& c, const Op&);
  static int64_t workspace(const kb::Call& c, const Op&);
  static void launch(const kb::Call& c, const Op&);
};

struct Chunk {  // chunks of 64 tokens on tensor cores, dense tiles; bf16, K = V = 64 or 128, decays that stay mild
  using Op = KdaOp;
  static constexpr const char* name = "chunk";
  static constexpr uint32_t device = KB_CUDA;
  static constexpr int32_t priority = 20;
  static void supports(const kb::Call& c, const Op&);
  static int64_t workspace(const kb::Call& c, const Op&);
  static void launch(const kb::Call& c, const Op&);
};
struct ChunkRescaled {  // the same for any decay
  using Op = KdaOp;
  static constexpr const char* name = "chunk-rescaled";
  static constexpr uint32_t device = KB_CUDA;
  static constexpr int32_t priority = 10;
  static void supports(const kb::Call& c, const Op&);
  static int64_t workspace(const kb::Call& c, const Op&);
  static void launch(const kb::Call& c, const Op&);
};

struct ChunkBackward {
  using Op = KdaBackwardOp;
  static constexpr const char* name = "chunk";
  static constexpr uint32_t device = KB_CUDA;
  static constexpr int32_t priority = 20;
  static void supports(const kb::Call& c, const Op&);
  static int64_t workspace(const kb::Call& c, const Op&);
  static void launch(const kb::Call& c, const Op&);
};
struct ChunkRescaledBackward {
  using Op = KdaBackwardOp;
  static constexpr const char* name = "chunk-rescaled";
  static constexpr uint32_t device = KB_CUDA;
  static constexpr int32_t priority = 10;
  static void supports(const kb::Call& c, const Op&);
  static int64_t workspace(const kb::Call& c, const Op&);
  static void launch(const kb::Call& c, const Op&);
};

// Shapes and pointers; pointers are null outside of launch.
Problem forward_problem(const kb::Call& c, const KdaOp& op);
Problem backward_problem(const kb::Call& c, const KdaBackwardOp& op);

}  // namespace kda::cuda
