#include <nlohmann/json.hpp>

#include "base/number.h"
#include "base/table.h"
#include "report/plan.h"

namespace kitbash {

nlohmann::json plan_json(const Plan& p) {
  nlohmann::json j;
  j["recipe"] = p.recipe;
  j["compute"] = p.compute;
  j["recompute"] = p.recompute;
  j["layers"] = p.layers_count;
  j["parameters"] = {{"total", p.total}, {"active", p.active}};
  j["cache_bytes_per_token"] = p.cache_bytes;
  j["state_bytes_per_sequence"] = p.state_bytes;
  for (const ContextPlan& c : p.contexts)
    j["flops_per_token"].push_back({{"context", c.context}, {"forward", c.forward}, {"training", c.training}});
  for (const LayerPlan& l : p.layers)
    j["layer_kinds"].push_back({{"kind", l.kind},
                                {"layers", l.layers},
                                {"parameters", l.parameters},
                                {"active", l.active},
                                {"forward_flops_per_token", l.flops},
                                {"cache_bytes_per_token", l.cache_bytes},
                                {"state_bytes_per_sequence", l.state_bytes}});
  for (const StagePlan& s : p.stages)
    j["stages"].push_back({{"name", s.name},
                           {"context", s.context},
                           {"micro_tokens", s.micro_tokens},
                           {"max_documents", s.max_documents},
                           {"arena_bytes", s.micro_arena},
                           {"feed_bytes", s.feed},
                           {"workspace_bytes", s.workspace},
                           {"nodes", s.nodes},
                           {"recomputed_nodes", s.clones}});
  j["store_bytes"] = {{"parameters", p.parameters_bytes},    {"optimizer", p.optimizer_bytes},
                      {"accumulators", p.accumulator_bytes}, {"model_states", p.model_state_bytes},
                      {"step_states", p.step_state_bytes},   {"total", p.store_bytes()}};
  j["arena_bytes"] = p.arena_bytes();
  j["program_bytes"] = p.program_bytes();
  j["apply_arena_bytes"] = p.apply_arena;
  j["workspace_included"] = p.with_workspace;
  return j;
}

std::string plan_text(const Plan& p) {
  std::string s = p.recipe + ": " + std::to_string(p.layers_count) + " layers, dim " + std::to_string(p.dim) +
                  ", vocab " + std::to_string(p.vocab) + ", compute " + p.compute + ", recompute " + p.recompute + "\n";
  s += "parameters: " + human_count(p.total) + " total, " + human_count(p.active) + " active for a token\n\n";
  const std::string context = p.contexts.empty() ? "" : std::to_string(p.contexts[0].context);
  Table layers({"layer kind", "layers", "parameters", "active", "FLOPs a token", "cache a token", "state a sequence"},
               "lrrrrrr");
  LayerPlan total{"total"};
  for (const LayerPlan& l : p.layers) {
    layers.row({l.kind, l.layers ? std::to_string(l.layers) : "", human_count(l.parameters), human_count(l.active),
                human_count(l.flops), human_bytes(l.cache_bytes), human_binary(l.state_bytes)});
    total.layers += l.layers, total.parameters += l.parameters, total.active += l.active, total.flops += l.flops;
    total.cache_bytes += l.cache_bytes, total.state_bytes += l.state_bytes;
  }
  layers.row({"total", std::to_string(total.layers), human_count(total.parameters), human_count(total.active),
              human_count(total.flops), human_bytes(total.cache_bytes), human_binary(total.state_bytes)});
  s += layers.text() + "FLOPs: forward, at context " + context + "\n\n";

  Table contexts({"context", "forward FLOPs a token", "training FLOPs a token"}, "rrr");
  for (const ContextPlan& c : p.contexts)
    contexts.row({std::to_string(c.context), human_count(c.forward), human_count(c.training)});
  s += contexts.text() + "\n";

  Table stages({"stage", "context", "micro tokens", "documents", "arena", "of it workspace", "nodes"}, "lrrrrrr");
  for (const StagePlan& g : p.stages)
    stages.row({g.name, std::to_string(g.context), std::to_string(g.micro_tokens), std::to_string(g.max_documents),
                human_binary(double(g.micro_arena)),
                p.with_workspace ? human_binary(double(g.workspace)) : "not counted", std::to_string(g.nodes)});
  s += stages.text() + "\n";

  Table memory({"memory", "bytes"}, "lr");
  memory.row({"parameters", human_binary(double(p.parameters_bytes))});
  memory.row({"optimiser", human_binary(double(p.optimizer_bytes))});
  memory.row({"gradient accumulators", human_binary(double(p.accumulator_bytes))});
  memory.row({"component states", human_binary(double(p.model_state_bytes + p.step_state_bytes))});
  memory.row({"store", human_binary(double(p.store_bytes()))});
  memory.row({"arena", human_binary(double(p.arena_bytes()))});
  memory.row({"programs", human_binary(double(p.program_bytes()))});
  memory.row({"total", human_binary(double(p.store_bytes() + p.arena_bytes() + p.program_bytes()))});
  s += memory.text();
  if (!p.with_workspace) s += "workspaces of kernels are not counted: the cpu has no kernels for " + p.compute + "\n";
  return s;
}

}  // namespace kitbash
