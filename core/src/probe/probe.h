// probe.h: one component, op or model run on tensors from a file: how authors compare with code of their own, and how the
// oracle vectors are checked. Reads in.*, param.*, state.*, upstream gradients in.up or in.up_<output>; writes out.*, grad.*,
// state.*. Tensors are packed [tokens, ..]; without in.cu all tokens are one document.
#pragma once
#include <string>
#include <vector>

#include "plugin/catalog.h"

namespace kitbash {

struct ProbeRequest {
  std::string what;    // "attention.kda", "op.depth_mix", "model"
  std::string config;  // TOML file: a component's keys, or the recipe; may be empty for a component
  std::string verb = "forward", in, out;
  std::vector<std::string> set, attr;  // attr: "experts=64"
  bool backward = false, update = false, train = true;
  std::string dtype = "f32";  // f32, f64; bf16 on cuda
  std::string device = "cpu";
  std::string arena = "planned";
  int threads = 0;
};
// Returns the lines to print: the kernels chosen.
std::vector<std::string> run_probe(const ProbeRequest& r, Catalog catalog);

}  // namespace kitbash
