// Rules for optimizers: one probe a step, which gets the weights and states that the step before left.
#include <cstdio>

#include "base/text.h"
#include "kitbash/error.h"
#include "rules.h"

namespace check_vectors {
namespace {

void steps(const VectorFile& f, Probe& probe, Check& check, const Request& settings) {
  Arrays kept = {{"in.w", f.at("in.w")}};  // in.w and state.*
  for (int step = 1; f.has("in.g" + std::to_string(step)); ++step) {
    Request r = settings;
    r.in = kept;
    r.in["in.g"] = f.at("in.g" + std::to_string(step));
    r.in["in.lr"] = scalar(f.number("lr", 1e-2));
    r.in["in.step"] = scalar(step);
    const Arrays got = probe.run(r);
    const std::string want = "out.w" + std::to_string(step);
    if (f.has(want)) check.compare(want, got, "out.w");
    if (!got.count("out.w")) return;
    kept = {{"in.w", got.at("out.w")}};
    for (const auto& [name, a] : got)
      if (name.starts_with("state.")) kept[name] = a;
  }
}

std::vector<std::string> attributes(int64_t blocks) {  // role 0: a matrix; flags 0: decays
  return {"--attr", "role=0", "--attr", "blocks=" + std::to_string(blocks), "--attr", "flags=0"};
}

}  // namespace

void adamw(const VectorFile& f, Probe& probe, Check& check) {
  const std::vector<std::string> betas = kitbash::split(f.text("betas", "0.9,0.95"), ',');
  if (betas.size() != 2) kb::fail("[check_vectors] betas must be two numbers but got ", betas.size());
  Request r;
  r.what = "optimizer.adamw";
  r.config = "beta1 = " + toml(std::stod(betas[0])) + "\nbeta2 = " + toml(std::stod(betas[1])) +
             "\neps = " + toml(f.number("eps", 1e-8)) + "\ndecay = " + toml(f.number("weight_decay", 0.1)) + "\n";
  r.options = attributes(1);
  steps(f, probe, check, r);
}

void muon(const VectorFile& f, Probe& probe, Check& check) {
  double scale = 0.2;
  const std::string words = f.text("scale", "");  // "0.2*sqrt(max(rows,cols)) of each block"
  if (!words.empty() && std::sscanf(words.c_str(), "%lf", &scale) != 1)
    kb::fail("[check_vectors] the scale must begin with a number but got '", words, "'");
  Request r;
  r.what = "optimizer.muon";
  r.config = "momentum = " + toml(f.number("momentum", 0.95)) + "\ndecay = " + toml(f.number("weight_decay", 0.1)) +
             "\nscale = " + toml(scale) + "\nsteps = " + std::to_string(int64_t(f.number("steps", 5))) + "\n";
  r.options = attributes(int64_t(f.number("heads", 1)));
  steps(f, probe, check, r);
}

}  // namespace check_vectors
