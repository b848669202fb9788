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

// For fold_adds: whether every kernel that this device has for the op can add to the output.
bool can_accumulate(const Node& n, uint32_t output, Registry& registry, kb_device_kind device);

}  // namespace kitbash
