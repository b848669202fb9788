// plan.h: what a recipe costs, from the same graphs that train it, with nothing run.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/language_model.h"

namespace kitbash {

struct LayerPlan {
  std::string kind;  // "linear", "global", ...; "embed", "head", "final"
  int64_t layers = 0;
  double parameters = 0, active = 0;        // all layers of the kind
  double flops = 0;                         // forward, a token, at the first context
  double cache_bytes = 0, state_bytes = 0;  // a token; a sequence
};
struct ContextPlan {
  int64_t context = 0;
  double forward = 0, training = 0;  // FLOPs a token
};
struct StagePlan {
  std::string name;
  int64_t context = 0, micro_tokens = 0, max_documents = 0;
  int64_t micro_arena = 0, feed = 0, workspace = 0;  // bytes
  int64_t nodes = 0, clones = 0;
};
// What a node that is ready to run holds outside store and arena: its call, its kernel's plan, a primitive of a library. Mean
// over the nodes of hybrid models, measured as the growth of the heap (tests/runtime/resident_test.cpp).
constexpr int64_t ready_node_bytes = 2 << 10;
struct Plan {
  std::string recipe, compute, recompute;
  int64_t layers_count = 0, dim = 0, vocab = 0;
  double total = 0, active = 0;
  double cache_bytes = 0, state_bytes = 0;
  std::vector<LayerPlan> layers;
  std::vector<ContextPlan> contexts;
  std::vector<StagePlan> stages;
  int64_t apply_arena = 0, apply_nodes = 0;
  int64_t parameters_bytes = 0, optimizer_bytes = 0, accumulator_bytes = 0, model_state_bytes = 0, step_state_bytes = 0;
  bool with_workspace = false;  // kernels of the cpu were asked; else workspaces are not part of the arena
  int64_t store_bytes() const {
    return parameters_bytes + optimizer_bytes + accumulator_bytes + model_state_bytes + step_state_bytes;
  }
  int64_t arena_bytes() const;    // the largest program's
  int64_t program_bytes() const;  // of all nodes of the largest micro and of apply
};

uint32_t compute_dtype(const Recipe& r);
// What the node's op says of itself, at the graph's bounds; 0 when it says nothing. Attention counts one document of all rows.
double node_flops(const Graph& g, const Node& n);
Plan make_plan(const Recipe& recipe, Registry& registry);
nlohmann::json plan_json(const Plan& p);
std::string plan_text(const Plan& p);

}  // namespace kitbash
