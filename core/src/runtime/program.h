// program.h: a graph made ready to run: scheduled, planned, kernels chosen; then bound to memory and run.
#pragma once
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "passes/passes.h"
#include "runtime/kernels.h"
#include "runtime/memory.h"
#include "runtime/row_exec.h"

namespace kitbash {

// What is looked at after every node; for tests and for finding the first bad node of a step.
enum class Check { none, finite, range };

class Program {
 public:
  // Runs fold_adds, schedule and the arena on the graph. An output named "step_ok" guards the writes of apply.
  // Row runs are executed tile by tile; without them (`by_rows` false) every node is run whole and can be checked.
  Program(std::unique_ptr<Graph> g, Device& device, ArenaMode mode, bool by_rows = true);
  Program(const Program&) = delete;
  ~Program();

  // Reserve for every program that shares the arena, then bind each.
  void reserve(Arena& a) const { a.reserve(plan_.arena_bytes); }
  void bind(Arena& a, StoreMemory& store);

  void* input(const std::string& name);  // memory of an input at its bounds; throws for an unknown name
  void set_extent(const std::string& name, int32_t rows);
  // Runs everything. With a check, returns the description of the first node whose output fails it (not with row runs).
  std::optional<std::string> run(Check check = Check::none);
  const void* output(const std::string& name) const;  // valid until the next run of a program in the same arena
  double scalar(const std::string& name) const;       // of an output or report
  const kb_type& output_type(const std::string& name) const;
  bool has_output(const std::string& name) const { return graph_->outputs.count(name) || graph_->reports.count(name); }

  const Graph& graph() const { return *graph_; }
  const MemoryPlan& plan() const { return plan_; }
  const std::vector<Choice>& choices() const { return choices_; }  // by position
  // Seconds spent in each position, summed over the runs since `time_nodes(true)`.
  void time_nodes(bool on) { timing_ = on, seconds_.assign(plan_.order.size(), 0); }
  const std::vector<double>& seconds() const { return seconds_; }

 private:
  struct Launch;
  char* address(ValueId v) const;
  void poison(int32_t position);
  void prepare_run(const RowRun& run);
  void launch(Launch& l);
  void clear_tails(const Launch& l) const;
  std::optional<std::string> check_outputs(const Launch& l, Check check) const;

  std::unique_ptr<Graph> graph_;
  Device& device_;
  ArenaMode mode_;
  MemoryPlan plan_;
  std::vector<Choice> choices_;
  std::vector<Launch> launches_;
  std::vector<std::unique_ptr<RowExec>> row_execs_;  // by run
  std::vector<int32_t> launch_at_;                   // by position: index in launches_, or -1
  std::vector<int32_t> extents_;
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  char* own_block(int64_t bytes);
  std::vector<std::unique_ptr<char, Free>> heap_;  // separate mode: one block a buffer
  std::vector<char*> buffer_at_;
  StoreMemory* store_ = nullptr;
  int32_t decide_at_ = -1;  // position after which step_ok is known
  bool timing_ = false;
  std::vector<double> seconds_;
};

}  // namespace kitbash
