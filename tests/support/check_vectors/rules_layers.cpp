// Rules for whole layers: attention and experts, with their parameters.
#include "kitbash/error.h"
#include "routing.h"
#include "rules.h"

namespace check_vectors {
namespace {

std::string key(const char* name, int64_t v) { return std::string(name) + " = " + std::to_string(v) + "\n"; }

// x [batch, time, dim] or [tokens, dim], with the upstream gradient of the only output.
Request layer(const VectorFile& f, const std::string& what) {
  Request r;
  r.what = what;
  r.options = {"--backward"};
  const bool batched = f.at("in.x").shape.size() == 3;
  for (const char* name : {"in.x", "in.up"}) r.in[name] = batched ? packed(f.at(name)) : f.at(name);
  copy_prefixed(f, "param.", r.in);
  return r;
}

Request attention(const VectorFile& f, const std::string& what) {
  Request r = layer(f, what);
  const Array& x = f.at("in.x");
  const bool batched = x.shape.size() == 3;
  r.in["in.cu"] = f.borders(batched ? x.dim(0) : 1, x.dim(batched ? 1 : 0));
  return r;
}

}  // namespace

std::string kda_keys(const VectorFile& f, const std::string& prefix, const std::string& decay) {
  std::string s = key("heads", f.at(prefix + "A_log").dim(0)) + key("head_dim", f.at(prefix + "o_norm").dim(0)) +
                  key("conv", f.at(prefix + "q_conv").dim(1)) + "decay = " + decay + "\n";
  if (f.has(prefix + "g_a")) s += key("gate_rank", f.at(prefix + "g_a").dim(0));
  return s;
}

void kda_layer(const VectorFile& f, Probe& probe, Check& check) {
  Request r = attention(f, "attention.kda");
  f.agreed("heads", f.at("param.A_log").dim(0));
  f.agreed("head_dim", f.at("param.o_norm").dim(0));
  r.config = kda_keys(f, "param.", decay_value(f.text("gate", "bounded"), f.number("floor", -5))) +
             "eps = " + toml(f.number("norm_eps", 1e-5)) + "\n";
  const Arrays got = probe.run(r);
  check.compare_same(got, "out.");
  check.compare_same(got, "grad.");
}

void gated_mla(const VectorFile& f, Probe& probe, Check& check) {
  Request r = attention(f, "attention.gated-mla");
  const int64_t heads = f.integer("heads"), kv_rank = f.at("param.kv_b").dim(1);
  const int64_t rope = f.at("param.kv_a").dim(0) - kv_rank, v_dim = f.at("param.o_proj").dim(1) / heads;
  const bool low_rank = f.has("param.q_a");
  const int64_t nope = f.at(low_rank ? "param.q_b" : "param.q_proj").dim(0) / heads - rope;
  r.config = key("heads", heads) + key("q_rank", f.agreed("q_rank", low_rank ? f.at("param.q_a").dim(0) : 0)) +
             key("kv_rank", f.agreed("kv_rank", kv_rank)) + key("nope_dim", f.agreed("nope_dim", nope)) +
             key("rope_dim", f.agreed("rope_dim", rope)) + key("v_dim", f.agreed("v_dim", v_dim));
  if (!f.has("param.g_proj")) r.config += "gate = false\n";
  const Arrays got = probe.run(r);
  check.compare_same(got, "out.");
  check.compare_same(got, "grad.");
}

std::string latent_moe_keys(const VectorFile& f, const std::string& prefix, int64_t active, int64_t tokens) {
  std::string router = "{ use = \"quantile\", estimator = \"exact\", capacity = " + std::to_string(tokens) + " }";
  return key("experts", f.at(prefix + "router").dim(0)) + key("active", active) +
         key("latent", f.has(prefix + "down") ? f.at(prefix + "down").dim(0) : 0) +
         key("width", f.at(prefix + "w1").dim(1)) +
         key("shared", f.has(prefix + "shared_w1") ? f.at(prefix + "shared_w1").dim(0) : 0) + "router = " + router +
         "\n";
}

void latent_moe(const VectorFile& f, Probe& probe, Check& check) {
  Request r = layer(f, "ffn.latent-moe");
  const int64_t tokens = r.in.at("in.x").dim(0), experts = f.agreed("experts", f.at("param.router").dim(0));
  const int64_t active = f.has("out.ids") ? f.agreed("active", f.at("out.ids").dim(-1)) : f.integer("active");
  f.agreed("latent", f.has("param.down") ? f.at("param.down").dim(0) : 0);
  f.agreed("width", f.at("param.w1").dim(1));
  f.agreed("shared_width", f.has("param.shared_w1") ? f.at("param.shared_w1").dim(0) : 0);
  const std::string activation = "{ use = \"situ-glu\", beta = " + toml(f.number("beta", 4)) +
                                 ", linear_beta = " + toml(f.number("linear_beta", 25)) + " }";
  r.config = latent_moe_keys(f, "param.", active, tokens) + "activation = " + activation +
             "\neps = " + toml(f.number("norm_eps", 1e-5)) + "\n";
  r.options.insert(r.options.end(), {"--mode", "train", "--update"});
  if (f.has("in.bias")) r.in["state.router.bias"] = f.at("in.bias");
  const Arrays got = probe.run(r);
  if (f.has("out.y")) check.compare("out.y", got, "out.y");
  if (f.has("out.next_bias")) check.compare("out.next_bias", got, "state.router.bias");
  check.compare_same(got, "grad.");
  check.internal("out.scores");
  check.internal("out.cutoff");
  if (!f.has("out.ids")) return;

  // The layer keeps the choice to itself, so the router is asked alone.
  Request alone;
  alone.what = "router.quantile";
  alone.config = router_lines(tokens);
  alone.options = {"--attr", "experts=" + std::to_string(experts), "--attr", "active=" + std::to_string(active)};
  alone.in = {{"in.x", r.in.at("in.x")}, {"param.router", f.at("param.router")}};
  if (f.has("in.bias")) alone.in["state.bias"] = f.at("in.bias");
  Arrays chosen = probe.run(alone);
  if (f.has("out.scores") && chosen.count("out.ids")) {
    const Array none, &bias = f.has("in.bias") ? f.at("in.bias") : none;
    chosen["out.ids"] = settle_ties(chosen["out.ids"], f.at("out.scores"), bias, tie_tolerance(probe));
  }
  check.compare("out.ids", chosen, "out.ids");
}

}  // namespace check_vectors
