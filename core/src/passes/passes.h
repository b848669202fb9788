// passes.h: what happens to a graph between building and running, in this order:
//   build -> (shard) -> differentiate -> recompute -> fold_adds -> fold_casts -> schedule -> fuse (CUDA) or row runs (CPU) -> arena
// shard is a slot: nothing stands there yet. Each pass is one file with its own test.
#pragma once
#include <functional>
#include <map>
#include <vector>

#include "graph/graph.h"

namespace kitbash {

// Reverse mode from the scalar `loss`. Each op's gradient rule emits ops; a gradient is cast to the type of its value.
// Returns the gradient of those of `want` that the loss depends on. Throws when a rule is missing. `ready` is called as soon
// as the gradient of a wanted input or stored value is complete: what it emits stands there, not at the end.
using GradientReady = std::function<void(ValueId value, ValueId gradient)>;
std::map<ValueId, ValueId> differentiate(Graph& g, ValueId loss, const std::vector<ValueId>& want,
                                         const GradientReady& ready = {});

// Backward nodes read clones of the forward nodes of their segment instead of saved values, except integers and values that
// cross a segment border. Light: only what costs a pass over memory (pointwise, norms, short convolutions, moves of rows), so
// that products and attention are kept and none is done twice. Returns the number of clones.
enum class Recompute { none, light, block };
int64_t recompute_segments(Graph& g, Recompute how = Recompute::block);

// add(a, b), where b comes from a kernel that can accumulate: b is added to a in place and the add disappears. Where b is a
// cast to a wider type, the kernel writes that type and the cast disappears too. `accumulates(node, output)` says whether the
// device has such a kernel for the node as it stands. Returns the number of folded adds.
using Accumulates = std::function<bool(const Node&, uint32_t)>;
int64_t fold_adds(Graph& g, const Accumulates& accumulates);

// A product whose operand is a cast to a wider type reads the narrow value, where the device has a kernel for just that:
// `kernel(node)` is the one that runs the node as it stands, or null. Returns the number of operands.
int64_t fold_casts(Graph& g, const std::function<const void*(const Node&)>& kernel);

// Live nodes in the order of building; a clone stands just before its first consumer. With `first`, everything that this
// value needs comes before everything else (apply decides step_ok before it changes anything).
std::vector<NodeId> schedule(const Graph& g, ValueId first = 0);

// Groups of pointwise nodes become nodes of the op "fused", which a device runs as one kernel each; what only a group sees
// is never in memory. Returns the new order; the nodes are added to the graph and make the values that others read. No group
// reaches across the maker of `barrier`.
std::vector<NodeId> fuse(Graph& g, const std::vector<NodeId>& order, ValueId barrier = 0);

// ---- arena
enum class ArenaMode { planned, separate, poison };

// Consecutive nodes that work on each row of axis 0 alone. They run together, a few rows at a time, so that what passes between
// them stays in the cache, and what only they see needs no memory beyond a tile.
struct RowRun {
  int32_t first = 0, last = 0;   // positions, inclusive
  int64_t rows = 0;              // axis 0 of every member's outputs
  uint32_t extent = 0;           // of every member's outputs
  std::vector<int32_t> members;  // positions, in order
  std::vector<int32_t> before;   // positions of small nodes inside that need nothing of the run: they run first
  int64_t row_bytes = 0;         // scratch that one row needs
};
// Which inputs of a row-local node are cut along axis 0; the others are passed whole. Empty: the node is not row-local.
std::vector<char> row_inputs(const Graph& g, const Node& n);
// `eligible(node)`: its kernel needs neither plan nor workspace. A run never crosses `barrier` (the position of step_ok).
std::vector<RowRun> find_row_runs(const Graph& g, const std::vector<NodeId>& order,
                                  const std::function<bool(const Node&)>& eligible, int32_t barrier);

struct Buffer {
  enum class Home : uint8_t { arena, store, feed, tile } home = Home::arena;  // tile: offset within a row's scratch
  int64_t bytes = 0, offset = -1;                                             // offset: in the arena
  int32_t first = 0, last = 0;  // positions in the order at which it is live, both inclusive
  std::string entry;            // store: its name
  NodeId node = no_node;        // its first writer, for messages
};
struct CopyIn {  // before the node at `position` runs, `from` is copied into the buffer of `to`
  int32_t position;
  ValueId from, to;
};
struct CopyOut {  // after the node at `position`, `value` becomes the store entry
  int32_t position;
  ValueId value;
  size_t write;  // index in Graph::writes
};
struct MemoryPlan {
  std::vector<NodeId> order;
  std::vector<int32_t> buffer_of;  // by value; -1: nothing is kept
  std::vector<Buffer> buffers;
  std::vector<int64_t> workspace_offset;  // by position; -1: none
  std::vector<CopyIn> copies_in;
  std::vector<CopyOut> copies_out;
  std::vector<RowRun> runs;
  int64_t arena_bytes = 0;  // feeds, transient values and workspaces
  int64_t feed_bytes = 0, peak_workspace = 0;
};
// `workspace(node)`: bytes the node's kernel asks for. Bytes are shared only between values that are never live together.
MemoryPlan plan_memory(const Graph& g, std::vector<NodeId> order, const std::function<int64_t(const Node&)>& workspace,
                       std::vector<RowRun> runs = {});

}  // namespace kitbash
