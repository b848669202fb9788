// row_exec.h: runs a RowRun: every member on a tile of rows, then the next tile; tiles are shared out over the thread team.
#pragma once
#include <string>
#include <vector>

#include "passes/passes.h"
#include "runtime/kernels.h"

namespace kitbash {

class RowExec {
 public:
  struct Operand {
    char* data = nullptr;   // of row 0; null with `tile`, or when nobody wants the output
    int64_t tile = -1;      // offset in a row's scratch
    int64_t row_bytes = 0;  // 0: passed whole
    bool cut() const { return row_bytes > 0; }
  };
  struct Member {
    const Node* node = nullptr;
    const kb_kernel* kernel = nullptr;
    std::vector<kb_tensor> in, out;  // with the types of the whole tensors
    std::vector<Operand> in_at, out_at;
  };
  RowExec(const Graph& g, const RowRun& run, const kb_device& device) : graph_(g), run_(run), device_(device) {}
  void add(Member m) { members_.push_back(std::move(m)); }
  void finish();                    // after the last add
  void launch(int64_t rows) const;  // the first `rows` rows; throws what a kernel refuses
  const RowRun& run() const { return run_; }

 private:
  void tiles(int64_t begin, int64_t end, char* scratch, kb_error* e, std::string* where) const;
  const Graph& graph_;
  RowRun run_;
  const kb_device& device_;
  std::vector<Member> members_;
  int64_t tile_rows_ = 1;
  size_t scratch_bytes_ = 0;  // of a thread
};

}  // namespace kitbash
