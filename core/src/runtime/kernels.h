// kernels.h: which kernel runs a node. The highest priority whose supports() says yes; the others' reasons are kept.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"
#include "runtime/device.h"

namespace kitbash {

// A kb_call of a node with its types and without data; it owns what the call points to.
struct NodeCall {
  NodeCall(const Graph& g, const Node& n, const kb_device* device);
  NodeCall(NodeCall&&) = default;
  std::vector<kb_tensor> in, out;
  kb_call call{};
};

struct Choice {
  const kb_kernel* kernel = nullptr;
  std::string provider;
  std::string declined;  // "chunk16: wants a log decay of at least -5 ...; "
};
Choice choose_kernel(const Graph& g, const Node& n, Device& device);

// For fold_casts: the kernel that runs the node as it stands, or null.
const kb_kernel* kernel_of(const Graph& g, const Node& n, Device& device);

// For fold_adds: whether every kernel of the op can add to the output, and one takes the node as it stands. `device` may be
// null when none is open: then the kernels of `kind` are taken at their word.
bool can_accumulate(const Graph& g, const Node& n, uint32_t output, Registry& registry, kb_device_kind kind,
                    const kb_device* device);

}  // namespace kitbash
