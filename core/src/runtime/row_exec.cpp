#include "runtime/row_exec.h"

#include <algorithm>
#include <memory>

#include "kitbash/op.h"

namespace kitbash {

namespace {
constexpr int64_t tile_bytes =
    96 << 10;  // of scratch, or of operands when there is none: within the second-level cache
}

void RowExec::finish() {
  int64_t widest = 1;
  for (const Member& m : members_) {
    int64_t bytes = 0;
    for (const auto* list : {&m.in_at, &m.out_at})
      for (const Operand& o : *list) bytes += o.row_bytes;
    widest = std::max(widest, bytes);
  }
  tile_rows_ = std::clamp<int64_t>(tile_bytes / std::max(run_.row_bytes, widest), 1, run_.rows);
  scratch_bytes_ = size_t(tile_rows_ * run_.row_bytes) + 64;
}

void RowExec::tiles(int64_t begin, int64_t end, char* scratch, kb_error* e, std::string* where) const {
  kb_device alone = device_;  // a member runs on the thread that has the tile
  alone.parallel = nullptr;
  alone.threads = 1;
  std::vector<kb_tensor> in, out;
  for (int64_t t = begin; t < end; t += tile_rows_) {
    const int64_t rows = std::min(tile_rows_, end - t);
    auto place = [&](const std::vector<kb_tensor>& whole, const std::vector<Operand>& at, std::vector<kb_tensor>& now) {
      now = whole;
      for (size_t i = 0; i < now.size(); ++i) {
        if (at[i].cut()) now[i].type.shape[0] = rows;
        now[i].type.extent = 0;
        now[i].data = at[i].tile >= 0 ? scratch + at[i].tile * tile_rows_
                      : at[i].data    ? at[i].data + t * at[i].row_bytes
                                      : nullptr;
      }
    };
    for (const Member& m : members_) {
      place(m.in, m.in_at, in);
      place(m.out, m.out_at, out);
      kb_call c{};
      c.struct_size = KB_STRUCT_SIZE(kb_call, device);
      c.attr = m.node->attr, c.n_attr = m.node->n_attr;
      c.in = in.data(), c.n_in = uint32_t(in.size());
      c.out = out.data(), c.n_out = uint32_t(out.size());
      c.device = &alone;
      if (m.kernel->launch(nullptr, &c, e)) {
        *where = graph_.describe(*m.node);
        return;
      }
    }
  }
}

void RowExec::launch(int64_t rows) const {
  struct Job {
    const RowExec* self;
    std::vector<kb_error> errors;
    std::vector<std::string> where;
  };
  const auto threads = size_t(std::max(1, device_.threads));
  Job job{this, std::vector<kb_error>(threads), std::vector<std::string>(threads)};
  auto body = [](void* p, int64_t begin, int64_t end, int32_t thread) {
    Job& j = *static_cast<Job*>(p);
    // One for all runs, since a thread works on one tile at a time.
    static thread_local std::vector<char> scratch;
    scratch.resize(std::max(scratch.size(), j.self->scratch_bytes_));
    void* aligned = scratch.data();
    size_t room = scratch.size();
    aligned = std::align(64, 1, aligned, room);
    j.self->tiles(begin, end, static_cast<char*>(aligned), &j.errors[size_t(thread)], &j.where[size_t(thread)]);
  };
  if (device_.parallel && rows > tile_rows_)
    device_.parallel(device_.team, rows, tile_rows_, body, &job);
  else
    body(&job, 0, rows, 0);
  for (size_t i = 0; i < job.errors.size(); ++i)
    if (job.errors[i].code) throw kb::Error(job.where[i] + ": " + job.errors[i].message, job.errors[i].code);
}

}  // namespace kitbash
