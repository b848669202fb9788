// graph.h: attention graphs of cuDNN, one a shape. graph.cpp alone sees cuDNN's headers, which take long to compile.
// Packed documents ("THD"): operands are [tokens, heads, width], and offsets in elements say where a document begins.
#pragma once
#include <cuda_runtime_api.h>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace kb::cudnn {

struct Shape {
  int64_t tokens, documents, heads, groups, key_width, value_width;  // bounds of the call
  bool causal, backward, deterministic;                              // the last: of a backward graph
  float scale;
  auto operator<=>(const Shape&) const = default;
};
// Operands of a graph. Forward gives most, the largest scaled logit of a row, and total, the sum of exp(logit - most); backward
// takes lse. These are [tokens, heads] f32, length is [documents] i32, and the offsets are [documents + 1] i64: of q, k, v, o in
// elements of that tensor, of row in those of lse.
enum Operand : int64_t { q = 1, k, v, o, lse, most, total, up, dq, dk, dv, length, at_q, at_k, at_v, at_o, at_row };
using Operands = std::unordered_map<int64_t, void*>;

inline size_t rounded(size_t bytes) { return (bytes + 255) / 256 * 256; }  // parts of a workspace

class Graph {
 public:
  // Builds it on the first call for this shape and keeps it; the device of the calling thread must be set. Throws kb::Error:
  // cuDNN is not found or too old, or its words why it declines.
  static const Graph& of(const Shape& s);
  virtual ~Graph() = default;
  virtual size_t workspace() const = 0;  // bytes
  // Enqueues; may be captured. `workspace` and operands: 256-byte alignment, rows of q, k, v, o 16.
  virtual void run(const Operands& operands, void* workspace, cudaStream_t stream) const = 0;
};

// Bytes that a backward graph with sums in a fixed order keeps (all logits' gradients); known without cuDNN.
size_t deterministic_bytes(const Shape& s);

}  // namespace kb::cudnn
