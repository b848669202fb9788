// graph.cpp: builds and runs the graphs through cudnn-frontend, with cuDNN opened at run time.
#include "graph.h"

#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "kitbash/error.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // where the header looks for cuDNN's functions
}

namespace kb::cudnn {
namespace {
namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

void ok(fe::error_t e, const char* what) {
  if (!e.is_good()) fail("cuDNN must take this attention but ", what, " says: ", e.get_message());
}

// cuDNN and its handle for this process; the host has none to give, since it opens no library that a recipe may not need. Never
// closed: at exit the driver may be gone before it.
struct Library {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
  struct Known {
    std::unique_ptr<kb::cudnn::Graph> graph;
    std::string declined;  // why there is none
  };
  std::map<Shape, Known> graphs;

  void open() {
    if (handle) return;
    if (!fe::cudnn_dlhandle) fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (!fe::cudnn_dlhandle) fail("cuDNN 9 must be where the loader looks but it says: ", dlerror());
    constexpr size_t kOldest = 91400;  // the oldest that was tried
    const size_t version = fe::detail::get_backend_version();
    if (version < kOldest)
      fail("cuDNN must be 9.14 or newer but is ", version / 10000, ".", version / 100 % 100, ".", version % 100);
    if (fe::detail::create_handle(&handle) != CUDNN_STATUS_SUCCESS)
      handle = nullptr, fail("cuDNN must open the device but does not");
  }
};
Library& library() {
  static Library& l = *new Library;
  return l;
}

class Built final : public kb::cudnn::Graph {
 public:
  Built(const Shape& shape, cudnnHandle_t handle) : s_(shape), handle_(handle) {
    // The bound of a document, to whole tiles: the frontend declines a bound of 1.
    bound_ = (std::max<int64_t>(s_.tokens, 1) + 127) / 128 * 128;
    g_.set_io_data_type(fe::DataType_t::BFLOAT16)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    if (s_.backward)
      add_backward();
    else
      add_forward();
    ok(g_.validate(), "validation");
    ok(g_.build_operation_graph(handle_), "the operation graph");
    ok(g_.create_execution_plans({fe::HeurMode_t::A}), "its heuristic");
    ok(g_.check_support(), "the support check");
    ok(g_.build_plans(), "the plan");
    int64_t bytes = 0;
    ok(g_.get_workspace_size(bytes), "the workspace");
    bytes_ = size_t(bytes);
  }
  size_t workspace() const override { return bytes_; }
  void run(const Operands& operands, void* workspace, cudaStream_t stream) const override {
    Library& l = library();
    const std::lock_guard hold(l.mutex);
    if (fe::detail::set_stream(handle_, stream) != CUDNN_STATUS_SUCCESS)
      fail("cuDNN must take the stream but does not");
    Operands copy = operands;  // the frontend wants one that it may write
    ok(g_.execute(handle_, copy, workspace), "the launch");
  }

 private:
  Shape s_;
  cudnnHandle_t handle_;
  mutable fe::graph::Graph g_;
  int64_t bound_ = 0;
  size_t bytes_ = 0;

  Tensor numbers(const char* name, Operand id, int64_t n, fe::DataType_t type) {
    return g_.tensor(fe::graph::Tensor_attributes()
                         .set_name(name)
                         .set_uid(id)
                         .set_dim({n, 1, 1, 1})
                         .set_stride({1, 1, 1, 1})
                         .set_data_type(type));
  }
  Tensor offsets(const char* name, Operand id) { return numbers(name, id, s_.documents + 1, fe::DataType_t::INT64); }
  // Gives a tensor the layout [tokens, heads, width] with documents at `at`.
  void lay(const Tensor& t, Operand id, int64_t heads, int64_t width, const Tensor& at, fe::DataType_t type) const {
    t->set_uid(id)
        .set_dim({s_.documents, heads, bound_, width})
        .set_stride({bound_ * heads * width, width, heads * width, 1})
        .set_ragged_offset(at)
        .set_data_type(type);
  }
  Tensor operand(const char* name, Operand id, int64_t heads, int64_t width, const Tensor& at,
                 fe::DataType_t type = fe::DataType_t::BFLOAT16) {
    const Tensor t = g_.tensor(fe::graph::Tensor_attributes().set_name(name));
    lay(t, id, heads, width, at, type);
    return t;
  }
  void result(const Tensor& t, Operand id, int64_t heads, int64_t width, const Tensor& at,
              fe::DataType_t type = fe::DataType_t::BFLOAT16) const {
    t->set_output(true);
    lay(t, id, heads, width, at, type);
  }

  void add_forward() {
    const Tensor in_q = offsets("at_q", at_q), in_k = offsets("at_k", at_k), in_v = offsets("at_v", at_v),
                 in_o = offsets("at_o", at_o), in_row = offsets("at_row", at_row),
                 lengths = numbers("length", length, s_.documents, fe::DataType_t::INT32);
    const Tensor largest = operand("most", most, s_.heads, 1, in_row, fe::DataType_t::FLOAT),
                 sum = operand("total", total, s_.heads, 1, in_row, fe::DataType_t::FLOAT);
    largest->set_output(true), sum->set_output(true);
    auto options = fe::graph::SDPA_attributes()
                       .set_name("attention")
                       .set_generate_stats(false)
                       .set_attn_scale(s_.scale)
                       .set_padding_mask(true)
                       .set_seq_len_q(lengths)
                       .set_seq_len_kv(lengths)
                       .set_logit_max(largest)
                       .set_score_sum_exp(sum);
    if (s_.causal) options.set_causal_mask(true);
    const auto out =
        g_.sdpa(operand("q", q, s_.heads, s_.key_width, in_q), operand("k", k, s_.groups, s_.key_width, in_k),
                operand("v", v, s_.groups, s_.value_width, in_v), options)[0];
    result(out, o, s_.heads, s_.value_width, in_o);
  }

  void add_backward() {
    const Tensor in_q = offsets("at_q", at_q), in_k = offsets("at_k", at_k), in_v = offsets("at_v", at_v),
                 in_o = offsets("at_o", at_o), in_row = offsets("at_row", at_row),
                 lengths = numbers("length", length, s_.documents, fe::DataType_t::INT32);
    auto options = fe::graph::SDPA_backward_attributes()
                       .set_name("attention_backward")
                       .set_attn_scale(s_.scale)
                       .set_padding_mask(true)
                       .set_seq_len_q(lengths)
                       .set_seq_len_kv(lengths)
                       .set_max_total_seq_len_q(s_.tokens)
                       .set_max_total_seq_len_kv(s_.tokens)
                       .set_deterministic_algorithm(s_.deterministic);
    if (s_.causal) options.set_causal_mask(true);
    const auto [to_q, to_k, to_v] = g_.sdpa_backward(
        operand("q", q, s_.heads, s_.key_width, in_q), operand("k", k, s_.groups, s_.key_width, in_k),
        operand("v", v, s_.groups, s_.value_width, in_v), operand("o", o, s_.heads, s_.value_width, in_o),
        operand("up", up, s_.heads, s_.value_width, in_o),
        operand("lse", lse, s_.heads, 1, in_row, fe::DataType_t::FLOAT), options);
    result(to_q, dq, s_.heads, s_.key_width, in_q);
    result(to_k, dk, s_.groups, s_.key_width, in_k);
    result(to_v, dv, s_.groups, s_.value_width, in_v);
  }
};

}  // namespace

const kb::cudnn::Graph& kb::cudnn::Graph::of(const Shape& s) {
  Library& l = library();
  const std::lock_guard hold(l.mutex);
  try {
    l.open();
    Library::Known& known = l.graphs[s];
    if (!known.declined.empty()) throw Error(known.declined);
    if (!known.graph) {
      try {
        known.graph = std::make_unique<Built>(s, l.handle);
      } catch (const Error& e) {  // to build it again would take as long and say the same
        known.declined = e.what();
        throw;
      }
    }
    return *known.graph;
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {  // the frontend's own: a function or a CUDA library that is not found
    fail("cuDNN must take this attention but: ", e.what());
  }
}

size_t deterministic_bytes(const Shape& s) {
  const int64_t bound = (s.tokens + 127) / 128 * 128;
  return size_t(s.documents * s.heads) * size_t(bound) * size_t(bound) * 2;
}

}  // namespace kb::cudnn
