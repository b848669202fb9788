// Running on a device with memory of its own: launched node by node, or replayed as one recorded graph.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "kitbash/op.h"
#include "runtime/launch.h"

namespace kitbash {

// Host copies of the feeds, the extents in device memory, and what is reset at the end.
void Program::bind_device() {
  const Graph& g = *graph_;
  extent_block_ = std::make_unique<Block>(int64_t(extents_.size() * sizeof(int32_t)), &device_);
  feed_at_.assign(plan_.buffers.size(), {0, 0});
  const bool together = mode_ != ArenaMode::separate;  // the planner puts feeds in front of the arena, without gaps
  for (size_t i = 0; i < plan_.buffers.size(); ++i) {
    const Buffer& b = plan_.buffers[i];
    if (b.home != Buffer::Home::feed) continue;
    if (!together) {
      feed_at_[i] = {feeds_.size(), 0};
      feeds_.push_back({std::vector<char>(size_t(b.bytes)), buffer_at_[i]});
      continue;
    }
    if (feeds_.empty()) feeds_.push_back({std::vector<char>(size_t(plan_.feed_bytes)), buffer_at_[i] - b.offset});
    feed_at_[i] = {0, b.offset};
  }
  for (const std::string& name : g.resets) {
    const StoreEntry& e = *store_->store().find(name);
    resets_.push_back({store_->at(name), e.bytes(), e.fill == 0 ? "" : name});
  }
  std::sort(resets_.begin(), resets_.end(), [](const Reset& a, const Reset& b) { return a.at < b.at; });
  std::vector<Reset> merged;
  for (const Reset& r : resets_) {
    // Entries lie at multiples of 64 bytes; what is between them belongs to nobody.
    if (!merged.empty() && r.entry.empty() && merged.back().entry.empty() &&
        r.at - (merged.back().at + merged.back().bytes) < 64)
      merged.back().bytes = r.at + r.bytes - merged.back().at;
    else
      merged.push_back(r);
  }
  resets_ = std::move(merged);
  if (decide_at_ >= 0 && g.type(g.outputs.at("step_ok")).dtype != KB_F32)
    kb::fail("[", g.name, "] step_ok must be f32 on this device but is ",
             kb::dtype_name(g.type(g.outputs.at("step_ok")).dtype));
}

bool Program::all_rows_used() const {
  for (size_t i = 1; i < extents_.size(); ++i)
    if (extents_[i] < extent_bound_[i]) return false;
  return true;
}

// With KITBASH_TRACE set: waits for every node, so that what fails on the device is told with its node, and prints those that
// take long; with KITBASH_TRACE=all, every node before it is launched, so that the last line names one that does not end.
void Program::trace(Launch& l) {
  constexpr double long_seconds = 5e-3;
  using clock = std::chrono::steady_clock;
  const std::string node = graph_->name + ": " + graph_->describe(graph_->nodes[l.node]) + " by " + l.kernel->name;
  static const bool all = std::string(std::getenv("KITBASH_TRACE")) == "all";
  if (all) std::fprintf(stderr, "trace: %s\n", node.c_str());
  device_.wait();
  const auto start = clock::now();
  launch(l);
  try {
    device_.wait();
  } catch (const kb::Error& e) {
    throw kb::Error(node + ": " + e.what(), e.code);
  }
  const double seconds = std::chrono::duration<double>(clock::now() - start).count();
  if (seconds >= long_seconds) std::fprintf(stderr, "trace: %8.2f ms  %s\n", 1e3 * seconds, node.c_str());
}

bool Program::enqueue(bool recording, bool full, Check check, std::optional<std::string>* bad) {
  static const bool traced = std::getenv("KITBASH_TRACE") != nullptr;
  bool ok = true;
  size_t in = 0, out = 0;
  const bool poisoned = mode_ == ArenaMode::poison && !recording;
  const auto* used = reinterpret_cast<const int32_t*>(extent_block_->data());
  if (poisoned) poison(-1);
  if (timing_) device_.stamp(0);
  const auto end = int32_t(plan_.order.size());
  for (int32_t p = 0; p < end && ok; ++p) {
    copy_ins(p, in);
    if (launch_at_[size_t(p)] >= 0) {
      Launch& l = launches_[size_t(launch_at_[size_t(p)])];
      if (traced && !recording)
        trace(l);
      else
        launch(l);
      if (!full)
        for (const auto& t : l.tails) device_.clear_tail(t.data, t.rows, t.row_bytes, used + t.extent);
      if (check != Check::none && !*bad) *bad = check_outputs(l, check);
    }
    copy_outs(p, out);
    if (timing_) device_.stamp(uint32_t(p) + 1);
    if (p == decide_at_ && recording)
      device_.only_if(static_cast<const float*>(static_cast<void*>(address(graph_->outputs.at("step_ok")))));
    if (p == decide_at_ && !recording) ok = scalar("step_ok") != 0;  // waits
    if (poisoned) poison(p);
  }
  if (recording && decide_at_ >= 0) device_.always();
  for (const Reset& r : resets_)
    if (r.entry.empty())
      device_.fill_bytes(r.at, r.bytes, 0);
    else
      store_->fill(r.entry);
  return ok;
}

void Program::add_times() {
  for (uint32_t p = 0; p < seconds_.size(); ++p) seconds_[p] += device_.elapsed(p, p + 1);
}

std::optional<std::string> Program::run_device(Check check) {
  fetched_.clear();
  for (const Feed& f : feeds_) device_.upload(f.device, f.host.data(), int64_t(f.host.size()));
  device_.upload(extent_block_->data(), extents_.data(), int64_t(extents_.size() * sizeof(int32_t)));
  const bool full = all_rows_used();
  const bool whole = capture_ && mode_ == ArenaMode::planned && check == Check::none && !timing_;
  if (!whole || !warm_) {
    std::optional<std::string> bad;
    // A kernel's first launch may load code or make a plan, which no recording allows, so each has to run once before.
    const bool done = enqueue(false, full, check, &bad);
    warm_ = warm_ || done;
    if (timing_ && done) add_times();
    return bad;
  }
  void*& graph = recorded_[full];
  if (!graph) {
    try {
      device_.record();
      enqueue(true, full, check, nullptr);
      graph = device_.recorded();
    } catch (...) {
      device_.drop_record();
      throw;
    }
  }
  device_.replay(graph);
  return std::nullopt;
}

}  // namespace kitbash
