#include "probe/probe_model.h"

#include <cstring>

#include "base/tensor_values.h"
#include "kitbash/op.h"
#include "model/language_model.h"
#include "ops/ops.h"
#include "probe/files.h"
#include "runtime/device.h"

namespace kitbash {

std::vector<std::string> probe_model(const ProbeRequest& r, Catalog catalog) {
  if (r.config.empty()) kb::fail("[probe] a model needs --config with its recipe");
  if (!r.attr.empty() || r.verb != "forward")
    kb::fail("[probe] ", r.attr.empty() ? "--verb" : "--attr", " needs a component or an op but got model");
  const SafetensorsFile file = SafetensorsFile::open(r.in);
  Registry registry(std::move(catalog));
  register_base_ops(registry);
  const Recipe recipe = load_recipe(r.config, r.set, registry.catalog());
  Device device(registry, device_kind(r.device), r.threads);
  LanguageModel model(recipe, registry);

  const std::vector<double> tokens = tensor_values(file.at("in.tokens"), "in.tokens");
  const std::vector<double> target = tensor_values(file.at("in.target"), "in.target");
  if (target.size() != tokens.size())
    kb::fail("[probe] in.target must have ", tokens.size(), " elements as in.tokens but got ", target.size());
  Bounds bounds;
  bounds.tokens = int64_t(tokens.size());
  const std::vector<int32_t> cu = read_borders(file, bounds.tokens);
  bounds.documents = int64_t(cu.size()) - 1;
  BuildOptions o;
  o.compute = probe_dtype(r.dtype, device.kind());
  o.recompute = recompute_of(recipe.train.recompute);
  o.logits = true;

  std::vector<std::unique_ptr<Program>> programs;
  auto add = [&](std::unique_ptr<Graph> g) {
    programs.push_back(std::make_unique<Program>(std::move(g), device, probe_arena(r.arena)));
    return programs.back().get();
  };
  Program* micro = add(model.micro(bounds, o));
  Program* eval = add(model.eval(bounds, o));
  Program* apply = r.update ? add(model.apply(o)) : nullptr;
  StoreMemory memory(model.store, &device);
  memory.allocate();
  Arena arena;
  for (auto& p : programs) p->reserve(arena);
  for (auto& p : programs) p->bind(arena, memory);

  for (const StoreEntry& e : model.store.entries()) {
    const bool param = e.life == Life::param;
    if (!param && e.life != Life::model && e.life != Life::step && e.life != Life::optimizer) continue;
    const std::string key = (param ? "param." : "state.") + e.name;
    if (const SafeTensor* t = file.find(key))
      load_entry(*t, key, e, memory);
    else if (param)
      kb::fail("[probe] the recipe needs the tensor ", key, " (", type_text(e.type), "), which ", r.in, " lacks");
  }
  auto feed = [&](Program& p) {
    auto* ids = static_cast<int32_t*>(p.input("tokens"));
    for (size_t i = 0; i < tokens.size(); ++i) ids[i] = int32_t(tokens[i]);
    auto* t = static_cast<int32_t*>(p.input("target"));
    for (size_t i = 0; i < target.size(); ++i) t[i] = int32_t(target[i]);
    const kb_type weight = p.graph().type(p.graph().inputs.at("loss_weight"));
    for (size_t i = 0; i < target.size(); ++i)
      fill_elements(static_cast<char*>(p.input("loss_weight")) + i * dtype_bytes(weight.dtype), weight.dtype, 1,
                    target[i] >= 0);
    fill_sequence(p, cu, bounds.tokens);
  };
  ResultFile result;
  feed(*eval);
  eval->run();
  result.add("out.logits", eval->output_type("logits"), eval->output("logits"));
  feed(*micro);
  micro->run();
  const double weight = micro->scalar("weight"), mean = micro->scalar("loss") / weight;
  result.add("out.loss", make_type(KB_F64, {1}), &mean);
  if (r.backward)
    for (const StoreEntry& e : model.store.entries()) {
      if (e.life != Life::accumulator || e.name.compare(0, 5, "grad.")) continue;
      std::vector<double> g(size_t(kb::elements(e.type)));
      std::vector<char> room;
      const char* at = memory.view(e.name, room);
      for (size_t i = 0; i < g.size(); ++i) g[i] = read_element(at, e.type.dtype, int64_t(i)) / weight;
      kb_type t = e.type;
      t.dtype = KB_F64;
      result.add(e.name, t, g.data());
    }
  if (apply) {  // a rate of 0: what changes is what components update themselves
    const uint32_t wide = o.compute == KB_F64 ? KB_F64 : KB_F32;
    for (const char* name : {"lr", "loss_limit", "norm_limit"}) fill_elements(apply->input(name), wide, 1, 0);
    fill_elements(apply->input("step"), wide, 1, 1);
    apply->run();
  }
  for (const StoreEntry& e : model.store.entries())
    if (e.life == Life::model || e.life == Life::step)
      result.add("state." + e.name, e.type, memory.bytes_of(e.name).data());
  result.write(r.out);
  return kernel_lines(*micro);
}

}  // namespace kitbash
