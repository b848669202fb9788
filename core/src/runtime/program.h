// program.h: a graph made ready to run: scheduled, planned, kernels chosen; then bound to memory and run.
//
// On a device with memory of its own (CUDA), input() gives host memory that every run uploads, and output() a copy that it
// fetches. The first run launches every node; after it a run is one recorded graph, in which the part that step_ok guards is
// conditional, so that nothing waits for the device until somebody reads an output. Both give equal bits.
#pragma once
#include <cstdlib>
#include <map>
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
  // Runs fold_adds, fold_casts, schedule and the arena on the graph. An output named "step_ok" guards the writes of apply.
  // `together`: small nodes run as one, on the CPU in row runs, tile by tile, on CUDA fused. Without it every node is run by
  // itself and can be checked.
  Program(std::unique_ptr<Graph> g, Device& device, ArenaMode mode, bool together = true);
  Program(const Program&) = delete;
  ~Program();

  // Reserve for every program that shares the arena, then bind each.
  void reserve(Arena& a) const { a.reserve(plan_.arena_bytes, &device_); }
  void bind(Arena& a, StoreMemory& store);

  void* input(const std::string& name);  // host memory of an input at its bounds; throws for an unknown name
  void set_extent(const std::string& name, int32_t rows);
  // Runs everything. With a check, returns the description of the first node whose output fails it (not with row runs).
  std::optional<std::string> run(Check check = Check::none);
  const void* output(
      const std::string& name) const;            // host memory, valid until the next run of a program in the same arena
  double scalar(const std::string& name) const;  // of an output or report
  const kb_type& output_type(const std::string& name) const;
  void set_capture(bool on) { capture_ = on; }  // off: every run launches node by node

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
  void copy_ins(int32_t position, size_t& next) const;
  void copy_outs(int32_t position, size_t& next) const;
  void bind_memory(Arena& arena, StoreMemory& store);
  void bind_launches(Arena& arena);
  ValueId output_id(const std::string& name) const;
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

  // ---- a device with memory of its own: device_run.cpp
  struct Feed {  // consecutive device memory that is uploaded at once
    std::vector<char> host;
    char* device;
  };
  struct Reset {  // neighbours that become zero are one
    char* at;
    int64_t bytes;
    std::string entry;  // empty: zero
  };
  void bind_device();
  std::optional<std::string> run_device(Check check);
  // True: went to the end, so that every kernel has run once.
  bool enqueue(bool recording, bool full, Check check, std::optional<std::string>* bad);
  void trace(Launch& l);
  bool all_rows_used() const;
  void add_times();
  std::vector<Feed> feeds_;
  std::vector<std::pair<size_t, int64_t>> feed_at_;  // by buffer: feed, offset
  std::unique_ptr<Block> extent_block_;
  std::vector<Block> blocks_;          // separate mode: buffers and workspaces
  std::vector<int32_t> extent_bound_;  // by extent: the most rows of a value
  std::vector<Reset> resets_;
  void* recorded_[2] = {};  // by whether all rows are in use: then no tail has to be cleared
  bool capture_ = true, warm_ = false;
  mutable std::map<std::string, std::vector<char>> fetched_;
};

}  // namespace kitbash
