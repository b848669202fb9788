// language_model.h: the one skeleton that every recipe fills: embedding, residual-driven layers of attention and ffn, final
// norm, head, objective; and the programs over it. Parameter names follow the slots: layers.3.attn.q_proj.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "passes/passes.h"
#include "recipe/recipe.h"

namespace kitbash {

struct Bounds {
  int64_t tokens = 0, documents = 1;  // of a micro-batch; in serving, documents is the number of sequences at once
  int64_t slots = 1, capacity = 0;    // serving: sequences that have state, tokens that a cache holds
};

inline Recompute recompute_of(const std::string& text) {  // of the key train.recompute
  return text == "block" ? Recompute::block : text == "light" ? Recompute::light : Recompute::none;
}
struct BuildOptions {
  uint32_t compute = KB_F32;
  Recompute recompute = Recompute::none;
  bool logits =
      false;  // eval, prefill, decode: logits of every token; else prefill and decode give those of row `last`
  int64_t tile = 1;
};

class LanguageModel {
 public:
  LanguageModel(const Recipe& recipe, Registry& registry);

  // Inputs of all: tokens, position, document [tokens] i32, cu [documents + 1] i32; extent "tokens".
  // micro, eval: and the objective's columns. Outputs: loss (sum), weight (sum of loss_weight).
  //   micro adds to the accumulators grad.<parameter>, sum.loss, sum.weight, and to STEP states.
  std::unique_ptr<Graph> micro(const Bounds& b, const BuildOptions& o);
  std::unique_ptr<Graph> eval(const Bounds& b, const BuildOptions& o);
  // Inputs also past, slot, last [documents] i32. Output: logits.
  std::unique_ptr<Graph> serve(bool decode, const Bounds& b, const BuildOptions& o);
  // Inputs lr, step, loss_limit, norm_limit (scalars, wide). Outputs step_ok, grad_norm, loss (mean). After micro.
  std::unique_ptr<Graph> apply(const BuildOptions& o);
  // Writes the initial value of every parameter. Before anything runs.
  std::unique_ptr<Graph> init(const BuildOptions& o);

  Store store;
  const Recipe& recipe() const { return recipe_; }
  Registry& registry() { return registry_; }
  const std::vector<kb_column>& columns() const { return columns_; }
  // The optimiser alone, for a probe of one parameter.
  const Instance& optimizer() const { return *optimizer_; }

 private:
  struct Forward {
    kb::Value loss, weight, logits;
  };
  Forward forward(Graph& g, kb::Builder& b, const Bounds& bounds, const BuildOptions& o, bool with_loss,
                  bool with_logits);
  std::unique_ptr<Graph> graph(const char* name, uint32_t mode, const Bounds& b, const BuildOptions& o);
  void guard_and_step(Graph& g, kb::Builder& b);

  const Recipe& recipe_;
  Registry& registry_;
  std::vector<std::unique_ptr<Instance>> attention_, ffn_;  // by layer
  std::unique_ptr<Instance> residual_, norm_, objective_, optimizer_;
  std::vector<kb_column> columns_;
  std::vector<std::string> trained_;  // parameters with a gradient, in the order of the store
};

// Parameters: all, and those that work for one token (experts by their active share, the embedding look-up not counted).
struct ParameterCount {
  double total = 0, active = 0;
};
ParameterCount count_parameters(const Store& store);

}  // namespace kitbash
