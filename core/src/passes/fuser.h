// fuser.h: the pass `fuse`. fuse.cpp finds the groups, fuse_again.cpp what they compute again, fuse_nodes.cpp makes nodes of them.
#pragma once
#include "kitbash/fused.h"
#include "kitbash/op.h"
#include "passes/passes.h"

namespace kitbash {

// Products of the last axes of a shape: 1, .., all. Each divides the next.
using Chain = std::vector<int64_t>;
bool join_chains(Chain& a, const Chain& b);  // false, and a as it was, where they cross

// An operand as the group reads it.
struct Operand {
  ValueId value = 0;  // 0: a constant
  double constant = 0;
  bool full = false;  // element i of the group is element i of it
  struct Axis {
    int64_t from, to, step;  // of the products [from, to): its step in memory
  };
  std::vector<Axis> axes;                // unless full
  Operand by_row(int64_t width) const {  // of something that has one value for `width` elements
    Operand o = *this;
    o.full = false, o.axes.clear();
    if (full) o.axes.push_back({width, INT64_MAX, 1});
    for (const Axis& a : axes) o.axes.push_back({a.from * width, a.to * width, a.step});
    return o;
  }
  // Its step along the part [from, ..) of the index.
  int64_t step(int64_t from) const {
    if (full) return from;
    for (const Axis& a : axes)
      if (a.from <= from && from < a.to) return a.step * (from / a.from);
    return 0;
  }
};

class Fuser {
 public:
  Fuser(Graph& graph, const std::vector<NodeId>& order, ValueId barrier);
  std::vector<NodeId> run();

 private:
  struct Group {
    bool open = true;
    int64_t elements = 0, rows = 0;  // rows: of axis 0, where an extent counts them
    int64_t width = 0;               // of the rows that members sum over; 0: none does
    uint32_t extent = 0;
    Chain chain;
    std::vector<int32_t> members, views;  // positions
    std::vector<int32_t> late;            // of nodes that read values of members, and must come after them
    std::set<ValueId> inputs;
    std::vector<NodeId> again;   // nodes of others that it computes for itself
    std::set<ValueId> not_read;  // their values
    int32_t merged_into = -1;
  };

  // What a member computes: a value an element, a sum over a row, or a value a row.
  enum class Kind { none, element, sum, row };

  const Node& node(int32_t p) const { return g_.nodes[order_[size_t(p)]]; }
  int32_t now(int32_t i) const {  // what group i has become
    while (i >= 0 && groups_[size_t(i)].merged_into >= 0) i = groups_[size_t(i)].merged_into;
    return i;
  }
  int32_t final_group(ValueId v) const { return now(group_of_[v]); }  // that makes v, or -1
  int32_t late_for(ValueId v) const {                                 // the open group that v has to come after, or -1
    const int32_t i = now(late_of_[v]);
    return i >= 0 && groups_[size_t(i)].open ? i : -1;
  }
  int32_t group(ValueId v) const {  // the open one
    const int32_t i = final_group(v);
    return i >= 0 && groups_[size_t(i)].open ? i : -1;
  }
  void close(int32_t i) {
    groups_[size_t(i)].open = false;
    std::erase(open_, i);
  }
  void close_all() {
    while (!open_.empty()) close(open_.back());
  }
  ValueId root(ValueId v) const { return root_[v]; }

  bool eligible(const Node& n) const;
  Operand operand(ValueId v, const kb_type& out) const;  // v, of a node whose result is like `out`
  Kind kind_in(const Group& gr, const Node& n) const;
  // Operand v of the member n as a member reads it from memory, or finds it among the members' values.
  Operand operand_in(const Group& gr, const Node& n, ValueId v, Kind kind) const;
  // Can a member refer to a value of group i: element by element, or row by row?
  bool refers(int32_t i, const Operand& o) const;
  // Takes the node at p into group i; false, and nothing changed, where it does not fit.
  bool join(int32_t i, int32_t p);
  bool merge(int32_t into, int32_t from);
  void visit(int32_t p);
  int32_t find_group(const Node& n, int32_t p);  // joins it; -1: none fits
  void open(const Node& n, int32_t p);
  bool reads_of(const Node& n, int32_t i) const;  // a value of group i
  void close_readers(ValueId changed);
  void dissolve_wide();
  // Does anybody read v from memory, apart from the nodes in `inside`? made: what v shows, if it is a view.
  bool read_by_others(ValueId v, ValueId made, const std::set<NodeId>& inside) const;
  std::set<NodeId> inside_of(const Group& gr) const;

  // ---- fuse_again.cpp
  struct Again;
  bool in_memory(ValueId v) const;
  double bytes(const std::set<ValueId>& values) const;
  bool expression(const Group& gr, ValueId v, Again& a, int depth) const;
  void compute_again(Group& gr);

  // ---- fuse_nodes.cpp
  struct Made {
    NodeId id;
    std::vector<NodeId> views;  // that others read: they come after it
  };
  struct Draft;
  bool make(const Group& gr, Made& made);  // false: not worth it
  void write_steps(const Group& gr, Draft& d) const;
  NodeId append(const Group& gr, const Draft& d);
  std::vector<NodeId> new_order();
  std::vector<NodeId> without_unread(const std::vector<NodeId>& order) const;

  Graph& g_;
  const std::vector<NodeId>& order_;
  std::vector<int32_t> group_of_;          // by value: the group that makes it, or a view of it
  std::vector<int32_t> late_of_;           // by value: the group that it has to come after
  std::vector<std::vector<NodeId>> uses_;  // by value; no_node: it is a result of the program
  std::vector<ValueId> root_;              // by value: what a view shows
  std::map<NodeId, int32_t> position_of_;
  std::vector<Group> groups_;
  std::vector<int32_t> open_;
  NodeId barrier_;
};

inline constexpr size_t most_steps = 40, most_inputs = 20, most_outputs = 12;  // of a group
double number(const Node& n, const char* name);                                // an attribute
// Sums over the last axis: its width, or 0 if the node is no such sum, or one that a few threads a row would do badly.
int64_t sums_row(const Graph& g, const Node& n);

}  // namespace kitbash
