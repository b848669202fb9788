// Rule for whole models: a recipe is written from the header's cfg and the shapes of the parameters.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "kitbash/error.h"
#include "rules.h"

namespace check_vectors {
namespace {

using nlohmann::json;

// "heads = 3\nwidth = 5\n" -> "heads = 3, width = 5", for an inline table
std::string in_line(const std::string& lines) {
  std::vector<std::string> parts = kitbash::split(kitbash::trim(lines), '\n');
  return kitbash::join(parts, ", ");
}

std::string mla_keys(const VectorFile& f, const std::string& p, const json& cfg) {
  const int64_t heads = cfg.at("heads"), kv_rank = f.at(p + "kv_b").dim(1), rope = f.at(p + "kv_a").dim(0) - kv_rank;
  const bool low_rank = f.has(p + "q_a");
  const int64_t nope = f.at(p + (low_rank ? "q_b" : "q_proj")).dim(0) / heads - rope;
  std::string s;
  auto add = [&](const char* k, int64_t v) { s += std::string(k) + " = " + std::to_string(v) + "\n"; };
  add("heads", heads), add("q_rank", low_rank ? f.at(p + "q_a").dim(0) : 0), add("kv_rank", kv_rank),
      add("nope_dim", nope);
  add("rope_dim", rope), add("v_dim", f.at(p + "o_proj").dim(1) / heads);
  if (!f.has(p + "g_proj")) s += "gate = false\n";
  return s;
}

std::string attention_value(const VectorFile& f, const std::string& p, const std::string& kind, const json& cfg) {
  if (kind == "kda")
    return "{ use = \"kda\", " +
           in_line(kda_keys(f, p, decay_value(cfg.value("gate", "bounded"), cfg.value("floor", -5.0)))) + " }";
  if (kind == "mla") return "{ use = \"gated-mla\", " + in_line(mla_keys(f, p, cfg)) + " }";
  kb::fail("[check_vectors] a layer must be kda or mla but got '", kind, "'");
}

std::string ffn_value(const VectorFile& f, const std::string& p, const json& cfg, int64_t tokens) {
  const std::string activation = "activation = { use = \"situ-glu\" }";
  if (f.has(p + "router"))
    return "{ use = \"latent-moe\", " + in_line(latent_moe_keys(f, p, cfg.at("active"), tokens)) + ", " + activation +
           " }";
  return "{ use = \"dense\", width = " + std::to_string(f.at(p + "w1").dim(0)) + ", " + activation + " }";
}

std::string recipe(const VectorFile& f, const json& cfg, const Array& cu) {
  const auto tokens = int64_t(cu.v.back());
  double longest = 1;
  for (size_t i = 1; i < cu.v.size(); ++i) longest = std::max(longest, cu.v[i] - cu.v[i - 1]);
  const size_t layers = cfg.at("layers").size();
  std::vector<std::string> names;
  std::string defined;
  for (size_t l = 0; l < layers; ++l) {
    names.push_back("\"l" + std::to_string(l) + "\"");
    const std::string p = "param.layers." + std::to_string(l) + ".";
    defined += "[model.layer.l" + std::to_string(l) +
               "]\nattention = " + attention_value(f, p + "attn.", cfg.at("layers")[l].get<std::string>(), cfg) +
               "\nffn = " + ffn_value(f, p + "ffn.", cfg, tokens) + "\n";
  }
  const std::string all = std::to_string(tokens);
  return "kitbash = 1\nname = \"vector\"\n[model]\ndim = " + std::to_string(f.at("param.embed").dim(1)) +
         "\nvocab = " + std::to_string(f.at("param.embed").dim(0)) + "\nlayers = " + std::to_string(layers) +
         "\npattern = [" + kitbash::join(names, ", ") + "]\nresidual = { use = \"block-attnres\", block_layers = " +
         std::to_string(cfg.at("block_layers").get<int64_t>()) + " }\n" + defined +
         "[train]\ncompute = \"f32\"\n[optimizer]\nuse = \"adamw\"\n[[curriculum]]\nname = \"vector\"\ncontext = " +
         std::to_string(int64_t(longest)) + "\ntokens = " + all + "\nbatch_tokens = " + all +
         "\nmicro_tokens = " + all + "\nmax_documents = " + std::to_string(cu.v.size() - 1) +
         "\nlr = 0.001\nschedule = { use = \"cosine\" }\n";
}

}  // namespace

// tokens, targets [batch, time]; bias.N [experts] of layer N's router.
void model(const VectorFile& f, Probe& probe, Check& check) {
  const Array& tokens = f.at("in.tokens");
  const Array cu = f.borders(tokens.dim(0), tokens.dim(1));
  json cfg;
  try {
    cfg = json::parse(f.text("cfg", ""));
    Request r;
    r.config = recipe(f, cfg, cu);
    r.what = "model";
    r.options = {"--backward", "--mode", "train", "--update"};
    r.in["in.tokens"] = packed(tokens);
    r.in["in.target"] = packed(f.at("in.targets"));
    r.in["in.cu"] = cu;
    copy_prefixed(f, "param.", r.in);
    auto state = [](const std::string& layer) { return "state.layers." + layer + ".ffn.router.bias"; };
    const std::string bias = "in.bias.", next = "out.next_bias.";
    for (const auto& [name, a] : f.tensors())
      if (name.starts_with(bias)) r.in[state(name.substr(bias.size()))] = a;
    const Arrays got = probe.run(r);
    for (const auto& [name, unused] : f.tensors())
      if (name.starts_with(next)) check.compare(name, got, state(name.substr(next.size())));
    check.compare_same(got, "out.");
    check.compare_same(got, "grad.");
  } catch (const json::exception& e) {
    kb::fail("[check_vectors] the header's cfg: ", e.what());
  }
}

}  // namespace check_vectors
