// graph.h: one program as SSA values and nodes, in the order in which they were built. Components build it through the host
// table (host.cpp); passes rewrite it; the runtime runs it. Types are complete: shape bounds, extent, dtype, value range.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "graph/ids.h"
#include "graph/instance.h"
#include "graph/store.h"
#include "kitbash/builder.h"

namespace kitbash {

using ValueId = kb_value;  // 0 = none
using NodeId = uint32_t;
inline constexpr NodeId no_node = UINT32_MAX;

enum class Phase : uint8_t { forward, recompute, backward, apply };
enum class NodeKind : uint8_t { op, input, read };  // read: the value that a store entry has before the program runs

struct Node {
  NodeKind kind = NodeKind::op;
  Phase phase = Phase::forward;
  uint32_t where = 0;    // provenance, Graph::where_text
  int32_t segment = -1;  // recompute unit of a forward node; -1: none
  const OpDef* op = nullptr;
  const kb_attr* attr = nullptr;  // owned by the graph
  uint32_t n_attr = 0;
  std::string name;  // of an input or store entry
  Ids in, out;
  std::vector<int32_t> alias;  // per output: the input that it changes in place, or -1; empty: none
  Ids base;                    // per output: a value it is added to, in place, or 0; empty: none
  NodeId clone_of = no_node;   // recompute: the forward node it repeats
  bool is(const char* op_name) const { return kind == NodeKind::op && op->name == op_name; }
  uint32_t traits() const { return op ? op->table->traits : 0; }
};

struct ValueInfo {
  kb_type type{};
  NodeId maker = no_node;
  uint32_t index = 0;  // which output of the maker
};

struct Write {  // the store entry `name` becomes `value` when the program ends
  std::string name;
  ValueId target, value;
  bool guarded = true;  // apply: only if step_ok holds
};

struct GraphOptions {
  uint32_t mode = KB_TRAIN, compute = KB_F32;
  int64_t slots = 1, capacity = 0;  // serving: rows of SEQUENCE states, tokens a row of TOKEN states
  int64_t tile = 1;                 // rows that an expert's segment is padded to, when the op leaves it to the device
  uint64_t seed = 0;                // of initial values
};

class Graph {
 public:
  Graph(std::string name, const GraphOptions& o, Registry& registry, Store& store);
  Graph(const Graph&) = delete;

  // ---- building
  kb::Builder builder();
  ValueId input(const std::string& name, const kb_type& t);
  ValueId read(const std::string& name);  // an existing store entry
  kb::Values build(const Instance& c, const std::string& path, uint32_t verb, const kb::Values& in,
                   const kb_attr* attrs, uint32_t n_attrs);
  kb::Values build(const Instance& c, const std::string& path, uint32_t verb, const kb::Values& in,
                   kb::Attrs attrs = {});
  // Runs the update mode of the component and its children, at the paths of their last build.
  void build_update(const Instance& c);
  void write(ValueId target, ValueId now);
  void output(const std::string& name, ValueId v) { outputs[name] = v; }
  NodeId append(Node n, const std::vector<kb_type>& out_types);  // passes: adds a node whose types are known
  uint32_t extent(const std::string& name);                      // number of a named device integer, made on first use
  const kb_attr* keep_attrs(const kb_attr* a, uint32_t n);       // copies all but names, which belong to the op's table

  // Provenance and recompute unit of the nodes that follow, until the scope ends.
  struct Scope {
    Scope(Graph& g, const std::string& path, Phase phase, int32_t segment = -1);
    ~Scope();
    Graph& g;
    Phase phase;
    int32_t segment;
  };

  // ---- reading
  const kb_type& type(ValueId v) const { return values[v].type; }
  Node& maker(ValueId v) { return nodes[values[v].maker]; }
  const Node& maker(ValueId v) const { return nodes[values[v].maker]; }
  const std::string& where_text(const Node& n) const { return wheres[n.where]; }
  std::string describe(const Node& n) const;  // "[layers.3.attn (attention.kda, tiny.toml:41) matmul]"
  uint32_t resolve(uint32_t dtype) const;     // KB_COMPUTE, KB_WIDE -> concrete

  const std::string name;
  const GraphOptions options;
  Registry& registry;
  Store& store;
  std::vector<Node> nodes;
  std::vector<ValueInfo> values;  // [0] is "none"
  std::map<std::string, ValueId> inputs, reads, outputs, reports;
  std::map<std::string, ValueId> init;  // parameter -> its initial value
  std::vector<Write> writes;
  std::vector<std::string> resets;  // store entries that go back to their fill when the program ends, step_ok or not
  std::vector<ValueId> losses;
  std::vector<std::string> extents{""};
  std::vector<std::string> wheres{""};
  uint32_t mode;  // of what is being built now: apply is built in KB_STEP, then in KB_UPDATE

  struct Frame {
    const Instance* instance;
    std::string path;
    uint32_t where;
  };
  std::vector<Frame> frames;
  Phase phase = Phase::forward;
  int32_t segment = -1;
  int32_t segments = 0;

 private:
  friend struct HostCalls;
  uint32_t intern_where(const std::string& s);
  char* take(size_t bytes);  // memory that lives as long as the graph
  std::vector<std::unique_ptr<char[]>> pages_;
  size_t page_used_ = page_bytes;
  static constexpr size_t page_bytes = 1 << 16;
  std::map<std::string, uint32_t> where_index_;
  std::map<ValueId, std::string> store_name_;  // reads, and values written in this graph
  std::map<std::string, size_t> write_index_;
};

// The table that components and gradient rules see; kb_builder is the Graph.
const kb_host& host_table();

}  // namespace kitbash
