#include "runtime/program.h"

#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

#include "kitbash/op.h"
#include "runtime/fusing.h"
#include "runtime/launch.h"

namespace kitbash {

Program::Program(std::unique_ptr<Graph> g, Device& device, ArenaMode mode, bool together)
    : graph_(std::move(g)), device_(device), mode_(mode) {
  Graph& graph = *graph_;
  fold_adds(graph, [&](const Node& n, uint32_t o) {
    return can_accumulate(graph, n, o, device.registry(), device.kind(), &device.table());
  });
  fold_casts(graph, [&](const Node& n) { return kernel_of(graph, n, device); });
  const auto ok = graph.outputs.find("step_ok");
  std::vector<NodeId> order = schedule(graph, ok == graph.outputs.end() ? 0 : ok->second);
  if (together && device.own_memory() && can_fuse(device))
    order = fuse(graph, order, ok == graph.outputs.end() ? 0 : ok->second);
  if (ok != graph.outputs.end())
    for (size_t p = 0; p < order.size(); ++p)
      if (order[p] == graph.values[ok->second].maker) decide_at_ = int32_t(p);
  // Workspaces depend on the kernel, so kernels come before the plan.
  std::vector<int64_t> workspace(graph.nodes.size(), 0);
  for (NodeId id : order) {
    const Node& n = graph.nodes[id];
    choices_.emplace_back();
    if (n.kind != NodeKind::op || (n.traits() & KB_VIEW)) continue;
    choices_.back() = choose_kernel(graph, n, device);
    const NodeCall c(graph, n, &device.table());
    if (choices_.back().kernel->workspace) workspace[id] = int64_t(choices_.back().kernel->workspace(&c.call));
  }
  std::vector<RowRun> runs;
  if (together && !device.own_memory()) {  // tiles are for caches: a GPU runs a node on all rows at once
    std::vector<char> eligible(graph.nodes.size(), 0);
    for (size_t p = 0; p < order.size(); ++p)
      if (const kb_kernel* k = choices_[p].kernel) eligible[order[p]] = !k->prepare && !k->workspace;
    runs = find_row_runs(
        graph, order, [&](const Node& n) { return eligible[size_t(&n - graph.nodes.data())] != 0; }, decide_at_);
  }
  plan_ = plan_memory(
      graph, std::move(order), [&](const Node& n) { return workspace[size_t(&n - graph.nodes.data())]; },
      std::move(runs));
  extents_.assign(graph.extents.size(), 0);
  for (const ValueInfo& v : graph.values)
    if (v.type.extent) extents_[v.type.extent] = std::max(extents_[v.type.extent], int32_t(v.type.shape[0]));
  extent_bound_ = extents_;
}

Program::~Program() {
  for (void* g : recorded_)
    if (g) device_.discard(g);  // after it is done: it may use what a plan holds
  for (Launch& l : launches_)
    if (l.plan && l.kernel->release) l.kernel->release(l.plan);
}

char* Program::address(ValueId v) const {
  const int32_t b = v ? plan_.buffer_of[v] : -1;
  return b < 0 ? nullptr : buffer_at_[size_t(b)];
}

// Exactly as long as the value, so that a sanitizer sees the first byte past it.
char* Program::own_block(int64_t bytes) {
  if (device_.own_memory()) {
    blocks_.emplace_back(bytes, &device_, false);
    device_.fill_bytes(blocks_.back().data(), bytes, 0xff);
    return blocks_.back().data();
  }
  void* p = nullptr;
  if (posix_memalign(&p, 64, size_t(std::max<int64_t>(bytes, 1))))
    kb::fail("[memory] ", bytes, " bytes must be available");
  std::memset(p, 0xff, size_t(std::max<int64_t>(bytes, 1)));
  heap_.emplace_back(static_cast<char*>(p));
  return heap_.back().get();
}

void Program::bind(Arena& arena, StoreMemory& store) {
  bind_memory(arena, store);
  if (device_.own_memory()) bind_device();
  bind_launches(arena);
  for (const RowRun& r : plan_.runs) prepare_run(r);
}

void Program::bind_memory(Arena& arena, StoreMemory& store) {
  store_ = &store;
  for (const Buffer& b : plan_.buffers) {
    if (b.home == Buffer::Home::tile) {
      buffer_at_.push_back(nullptr);
    } else if (b.home == Buffer::Home::store) {
      buffer_at_.push_back(store.at(b.entry));
    } else if (mode_ == ArenaMode::separate) {
      buffer_at_.push_back(own_block(b.bytes));
    } else {
      buffer_at_.push_back(arena.data() + b.offset);
    }
  }
}

void Program::bind_launches(Arena& arena) {
  const Graph& g = *graph_;
  const auto* extents =
      device_.own_memory() ? reinterpret_cast<const int32_t*>(extent_block_->data()) : extents_.data();
  for (int32_t p = 0; p < int32_t(plan_.order.size()); ++p) {
    const NodeId id = plan_.order[size_t(p)];
    const Node& n = g.nodes[id];
    if (!choices_[size_t(p)].kernel) continue;
    Launch l{p, id, NodeCall(g, n, &device_.table()), choices_[size_t(p)].kernel, nullptr, {}};
    for (size_t i = 0; i < n.in.size(); ++i) l.call.in[i].data = address(n.in[i]);
    for (size_t o = 0; o < n.out.size(); ++o) {
      l.call.out[o].data = address(n.out[o]);
      const kb_type& t = g.type(n.out[o]);
      if (t.extent && l.call.out[o].data)
        l.tails.push_back({address(n.out[o]), t.extent, t.shape[0], t.shape[0] ? type_bytes(t) / t.shape[0] : 0});
    }
    l.call.call.in = l.call.in.data(), l.call.call.out = l.call.out.data();
    l.call.call.extents = extents;
    if (const int64_t w = plan_.workspace_offset[size_t(p)]; w >= 0) {
      if (mode_ == ArenaMode::separate) {
        const NodeCall fresh(g, n, &device_.table());
        l.call.call.workspace = own_block(int64_t(l.kernel->workspace(&fresh.call)));
      } else {
        l.call.call.workspace = arena.data() + w;
      }
    }
    kb_error e{};
    if (l.kernel->prepare)
      if (int rc = l.kernel->prepare(&l.call.call, &l.plan, &e))
        throw kb::Error(g.describe(n) + ": kernel " + l.kernel->name + " cannot be prepared: " + e.message,
                        uint32_t(rc));
    launches_.push_back(std::move(l));
  }
  launch_at_.assign(plan_.order.size(), -1);
  for (size_t i = 0; i < launches_.size(); ++i) launch_at_[size_t(launches_[i].position)] = int32_t(i);
}

void Program::prepare_run(const RowRun& run) {
  const Graph& g = *graph_;
  row_execs_.push_back(std::make_unique<RowExec>(g, run, device_.table()));
  for (int32_t p : run.members) {
    const Launch& l = launches_[size_t(launch_at_[size_t(p)])];
    const Node& n = g.nodes[l.node];
    const std::vector<char> cut = row_inputs(g, n);
    auto operand = [&](ValueId v, bool rows) {
      RowExec::Operand o;
      o.data = address(v);
      if (v && rows) o.row_bytes = type_bytes(g.type(v)) / run.rows;
      const int32_t b = v ? plan_.buffer_of[v] : -1;
      if (b >= 0 && plan_.buffers[size_t(b)].home == Buffer::Home::tile) o.tile = plan_.buffers[size_t(b)].offset;
      return o;
    };
    RowExec::Member m;
    m.node = &n, m.kernel = l.kernel;
    m.in = l.call.in, m.out = l.call.out;
    for (size_t i = 0; i < n.in.size(); ++i) m.in_at.push_back(operand(n.in[i], cut[i] != 0));
    for (ValueId v : n.out) m.out_at.push_back(operand(v, true));
    row_execs_.back()->add(std::move(m));
  }
  row_execs_.back()->finish();
}

void* Program::input(const std::string& name) {
  auto v = graph_->inputs.find(name);
  if (v == graph_->inputs.end()) kb::fail("[", graph_->name, "] has no input '", name, "'");
  // An input that nothing reads has no buffer; its contents go nowhere.
  static std::vector<char> nowhere;
  const int32_t buffer = plan_.buffer_of[v->second];
  if (buffer < 0) {
    nowhere.resize(std::max(nowhere.size(), size_t(type_bytes(graph_->type(v->second)))));
    return nowhere.data();
  }
  if (device_.own_memory()) {
    const auto [feed, offset] = feed_at_[size_t(buffer)];
    return feeds_[feed].host.data() + offset;
  }
  return address(v->second);
}

void Program::set_extent(const std::string& name, int32_t rows) {
  for (size_t i = 1; i < graph_->extents.size(); ++i)
    if (graph_->extents[i] == name) extents_[i] = rows;
}

ValueId Program::output_id(const std::string& name) const {
  auto v = graph_->outputs.find(name);
  if (v == graph_->outputs.end()) v = graph_->reports.find(name);
  if (v == graph_->reports.end()) kb::fail("[", graph_->name, "] has no output '", name, "'");
  return v->second;
}
const void* Program::output(const std::string& name) const {
  const ValueId v = output_id(name);
  if (!device_.own_memory()) return address(v);
  auto [at, fresh] = fetched_.emplace(name, 0);
  if (fresh) {
    at->second.resize(size_t(type_bytes(graph_->type(v))));
    device_.download(at->second.data(), address(v), int64_t(at->second.size()));
  }
  return at->second.data();
}
const kb_type& Program::output_type(const std::string& name) const { return graph_->type(output_id(name)); }
double Program::scalar(const std::string& name) const { return read_element(output(name), output_type(name).dtype, 0); }

void Program::poison(int32_t position) {
  // Before their first writer and after their last reader, transient bytes are NaN (all bits set).
  for (const Buffer& b : plan_.buffers)
    if (b.home == Buffer::Home::arena && (b.last == position || b.first == position + 1))
      device_.fill_bytes(buffer_at_[size_t(&b - plan_.buffers.data())], b.bytes, 0xff);
}

std::optional<std::string> Program::check_outputs(const Launch& l, Check check) const {
  for (size_t o = 0; o < l.call.out.size(); ++o) {
    const kb_tensor& t = l.call.out[o];
    if (!t.data || t.type.dtype < KB_BF16) continue;
    const int64_t n = kb::elements(t.type);
    const void* data = t.data;
    std::vector<char> fetched;
    if (device_.own_memory()) {
      fetched.resize(size_t(type_bytes(t.type)));
      device_.download(fetched.data(), t.data, int64_t(fetched.size()));
      data = fetched.data();
    }
    // A range holds up to the rounding of the type.
    const double slack = t.type.dtype == KB_F64 ? 1e-12 : t.type.dtype == KB_BF16 ? 4e-3 : 1e-5;
    for (int64_t i = 0; i < n; ++i) {
      const double x = read_element(data, t.type.dtype, i);
      const bool bad = check == Check::finite ? !std::isfinite(x)
                                              : !(x >= t.type.lo - slack * std::abs(t.type.lo) &&
                                                  x <= t.type.hi + slack * std::abs(t.type.hi));
      if (bad)
        return kb::text(
            graph_->describe(graph_->nodes[l.node]), ": output ", o, " has ", x, " at element ", i,
            check == Check::range ? kb::text(", outside [", t.type.lo, ", ", t.type.hi, "]") : std::string());
    }
  }
  return std::nullopt;
}

void Program::clear_tails(const Launch& l) const {
  for (const auto& t : l.tails)
    if (const int64_t rows = extents_[t.extent]; rows < t.rows)
      std::memset(t.data + rows * t.row_bytes, 0, size_t((t.rows - rows) * t.row_bytes));
}

void Program::launch(Launch& l) {
  kb_error e{};
  if (int rc = l.kernel->launch(l.plan, &l.call.call, &e)) {
    const Node& n = graph_->nodes[l.node];
    std::string why = e.message;
    if (const std::string own = std::string("[") + n.op->name + "] "; why.starts_with(own)) why.erase(0, own.size());
    throw kb::Error(graph_->describe(n) + ": " + why, uint32_t(rc));
  }
}

// Before the node at `position`: what an output in place starts from.
void Program::copy_ins(int32_t position, size_t& next) const {
  for (; next < plan_.copies_in.size() && plan_.copies_in[next].position == position; ++next)
    if (char* to = address(plan_.copies_in[next].to))
      device_.copy(to, address(plan_.copies_in[next].from), type_bytes(graph_->type(plan_.copies_in[next].to)));
}

// After it: values that become store entries.
void Program::copy_outs(int32_t position, size_t& next) const {
  for (; next < plan_.copies_out.size() && plan_.copies_out[next].position <= position; ++next) {
    const Write& w = graph_->writes[plan_.copies_out[next].write];
    if (decide_at_ >= 0 && position < decide_at_)
      kb::fail("[", graph_->name, "] '", w.name, "' is written before step_ok is known");
    device_.copy(store_->at(w.name), address(w.value), type_bytes(graph_->type(w.value)));
  }
}

std::optional<std::string> Program::run(Check check) {
  if (device_.own_memory()) return run_device(check);
  if (check != Check::none && !plan_.runs.empty())
    kb::fail("[", graph_->name, "] a checked run needs a program without row runs");
  std::optional<std::string> bad;
  bool ok = true;
  size_t in = 0, out = 0, run = 0;
  using clock = std::chrono::steady_clock;
  if (mode_ == ArenaMode::poison) poison(-1);
  const auto end = int32_t(plan_.order.size());
  for (int32_t p = 0; p < end && ok; ++p) {
    const auto start = timing_ ? clock::now() : clock::time_point{};
    const int32_t first = p;
    copy_ins(p, in);
    if (run < row_execs_.size() && row_execs_[run]->run().first == p) {
      const RowRun& r = row_execs_[run]->run();
      for (int32_t b : r.before) {
        launch(launches_[size_t(launch_at_[size_t(b)])]);
        clear_tails(launches_[size_t(launch_at_[size_t(b)])]);
      }
      row_execs_[run]->launch(r.extent ? std::min<int64_t>(r.rows, extents_[r.extent]) : r.rows);
      for (int32_t m : r.members) clear_tails(launches_[size_t(launch_at_[size_t(m)])]);
      p = r.last;
      ++run;
    } else if (launch_at_[size_t(p)] >= 0) {
      Launch& l = launches_[size_t(launch_at_[size_t(p)])];
      launch(l);
      clear_tails(l);
      if (check != Check::none && !bad) bad = check_outputs(l, check);
    }
    copy_outs(p, out);
    if (p == decide_at_) ok = scalar("step_ok") != 0;
    if (mode_ == ArenaMode::poison) poison(p);
    if (timing_) {  // a run's time is shared out over its members
      const double each = std::chrono::duration<double>(clock::now() - start).count() / double(p - first + 1);
      for (int32_t q = first; q <= p; ++q) seconds_[size_t(q)] += each;
    }
  }
  for (const std::string& name : graph_->resets) store_->fill(name);
  return bad;
}

}  // namespace kitbash
