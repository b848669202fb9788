// probe: one component, op or model on tensors from a file.
#include <iostream>
#include <memory>

#include "cli/verb.h"
#include "kitbash/error.h"
#include "probe/probe.h"

namespace kitbash {

void add_probe(CLI::App& app, Globals& g) {
  CLI::App* verb = app.add_subcommand("probe", "run a component, an op or a model on tensors from a safetensors file");
  auto r = std::make_shared<ProbeRequest>();
  auto mode = std::make_shared<std::string>("train");
  verb->add_option("what", r->what, "KIND.NAME, op.NAME or model")->required();
  verb->add_option("--config", r->config, "TOML: the component's keys, or the recipe of a model")->type_name("FILE");
  verb->add_option("--set", r->set, "replace a key; repeatable")->type_name("KEY=VALUE")->take_all();
  verb->add_option("--verb", r->verb, "which verb of the kind: forward, recur, choose")->type_name("NAME");
  verb->add_option("--attr", r->attr, "attribute of the call: experts=64; repeatable")
      ->type_name("NAME=VALUE")
      ->take_all();
  verb->add_option("--in", r->in, "reads in.*, param.*, state.*, in.up*")->required()->type_name("FILE");
  verb->add_option("--out", r->out, "writes out.*, grad.*, state.*")->required()->type_name("FILE");
  verb->add_flag("--backward", r->backward, "gradients of parameters and inputs too");
  verb->add_flag("--update", r->update, "run the component's update afterwards");
  verb->add_option("--mode", *mode, "train or eval")->type_name("MODE");
  verb->add_option("--dtype", r->dtype, "f32, f64 (cpu) or bf16 (cuda)")->type_name("TYPE");
  device_option(*verb, r->device);
  verb->add_option("--arena", r->arena, "planned, separate (a block a value) or poison (NaN in dead bytes)")
      ->type_name("MODE");
  verb->add_option("--threads", r->threads, "of the cpu; 0: all cores")->type_name("N");
  common_options(
      *verb, g, false,
      "kitbash probe attention.kda --config kda.toml --in x.safetensors --out y.safetensors --backward --dtype f64");
  verb->callback([&g, r, mode] {
    if (*mode != "train" && *mode != "eval") kb::fail("[probe] --mode must be train or eval but got '", *mode, "'");
    r->train = *mode == "train";
    for (const std::string& line : run_probe(*r, open_catalog(g))) std::cout << line << "\n";
    std::cout << "wrote " << r->out << "\n";
  });
}

}  // namespace kitbash
