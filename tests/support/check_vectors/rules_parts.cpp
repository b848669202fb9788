// Rules for single pieces: the KDA recurrence, the balancing router, the activation, the mix over depth.
#include <cstdio>
#include <cstdlib>

#include "kitbash/error.h"
#include "routing.h"
#include "rules.h"

namespace check_vectors {

std::string toml(double v) {
  char s[64];
  for (int digits = 6; digits <= 17; ++digits) {  // the shortest that reads back the same
    std::snprintf(s, sizeof s, "%.*g", digits, v);
    if (std::strtod(s, nullptr) == v) break;
  }
  const std::string t = s;
  return t.find_first_of(".en") == t.npos ? t + ".0" : t;
}

std::string decay_value(const std::string& gate, double floor) {
  if (gate == "softplus") return "{ use = \"softplus\" }";
  if (gate == "bounded") return "{ use = \"bounded\", floor = " + toml(floor) + " }";
  kb::fail("[check_vectors] the gate must be bounded or softplus but got '", gate, "'");
}

std::string router_lines(int64_t tokens) {
  return "estimator = \"exact\"\ncapacity = " + std::to_string(tokens) + "\n";
}

void copy_prefixed(const VectorFile& f, const std::string& prefix, Arrays& to) {
  for (const auto& [name, a] : f.tensors())
    if (name.starts_with(prefix)) to[name] = a;
}

// Scores and biases are about 1, and a score is a product and a sigmoid away from the input.
double tie_tolerance(const Probe& probe) { return probe.dtype() == "f64" ? 0 : 5e-6; }

namespace {

// The header describes the decay in words: "g=-5*sigmoid(exp(A_log)*z)".
std::string decay_in_words(const VectorFile& f) {
  const std::string what = f.text("what", "");
  std::string gate = f.text("gate", what.find("softplus") != what.npos ? "softplus" : "bounded");
  double floor = -5;
  if (const size_t at = what.find("g="); gate == "bounded" && at != what.npos)
    std::sscanf(what.c_str() + at, "g=%lf*", &floor);
  return decay_value(gate, f.number("floor", floor));
}

}  // namespace

// q, k [batch, time, heads, key], v [.., value], z like k, b [batch, time, heads], A_log [heads], s0 [documents, heads,
// key, value].
void kda(const VectorFile& f, Probe& probe, Check& check) {
  const Array& q = f.at("in.q");
  Request r;
  r.what = "attention.kda";
  r.config = "heads = " + std::to_string(q.dim(2)) + "\nhead_dim = " + std::to_string(q.dim(3)) +
             "\ndecay = " + decay_in_words(f) + "\n";
  r.options = {"--verb", "recur", "--backward"};
  for (const char* name : {"q", "k", "v", "z", "up_o"})
    r.in[std::string("in.") + name] = packed(f.at(std::string("in.") + name));
  r.in["in.beta"] = packed(f.at("in.b"));
  r.in["in.cu"] = f.borders(q.dim(0), q.dim(1));
  r.in["param.A_log"] = f.at("in.A_log");
  for (const char* name : {"in.s0", "in.up_state"})
    if (f.has(name)) r.in[name] = f.at(name);
  const Arrays got = probe.run(r);
  if (f.has("grad.b")) check.compare("grad.b", got, "grad.beta");
  check.compare_same(got, "out.");
  check.compare_same(got, "grad.");
}

// The same scores in every round; round i chooses with the bias that round i - 1 left. The file's bias of round i is
// fed, not our own: they differ by rounding, and a tie is decided by the last bit.
void quantile_balance(const VectorFile& f, Probe& probe, Check& check) {
  const Array& scores = f.at("in.scores");
  const int64_t tokens = scores.dim(0), experts = scores.dim(1);
  Array bias{{experts}, std::vector<double>(size_t(experts), 0.0), false};
  for (int round = 0; f.has("out.load" + std::to_string(round)) || f.has("out.bias" + std::to_string(round)); ++round) {
    const std::string i = std::to_string(round);
    if (f.has("out.bias" + i)) {
      check.compare("out.bias" + i, bias);
      bias = f.at("out.bias" + i);
    }
    Request r;
    r.what = "router.quantile";
    r.config = router_lines(tokens);
    r.options = {"--verb",
                 "choose",
                 "--mode",
                 "train",
                 "--update",
                 "--attr",
                 "experts=" + std::to_string(experts),
                 "--attr",
                 "active=" + std::to_string(f.integer("active"))};
    r.in = {{"in.scores", scores}, {"state.bias", bias}};
    const Arrays got = probe.run(r);
    if (!got.count("out.ids") || !got.count("state.bias")) kb::fail("the probe gave no out.ids or no state.bias");
    const Array ids = settle_ties(got.at("out.ids"), scores, bias, tie_tolerance(probe));
    if (f.has("out.load" + i)) check.compare("out.load" + i, loads(ids, experts));
    bias = got.at("state.bias");
  }
}

// a: gate branch, u: linear branch; any shape.
void situ_glu(const VectorFile& f, Probe& probe, Check& check) {
  auto rows = [](const Array& a) {
    const int64_t width = a.dim(-1);
    return reshaped(a, {int64_t(a.v.size()) / width, width});
  };
  Request r;
  r.what = "activation.situ-glu";
  r.config = "beta = " + toml(f.number("beta", 4)) + "\nlinear_beta = " + toml(f.number("linear_beta", 25)) + "\n";
  r.options = {"--backward"};
  r.in = {{"in.gate", rows(f.at("in.a"))}, {"in.linear", rows(f.at("in.u"))}, {"in.up", rows(f.at("in.up"))}};
  const Arrays got = probe.run(r);
  check.compare_same(got, "out.");
  if (f.has("grad.a")) check.compare("grad.a", got, "grad.gate");
  if (f.has("grad.u")) check.compare("grad.u", got, "grad.linear");
}

// v [sources, ..., dim]; the op takes the sources one by one, then norm and query [dim].
void attn_res_mix(const VectorFile& f, Probe& probe, Check& check) {
  const Array& v = f.at("in.v");
  const int64_t sources = v.dim(0), dim = v.dim(-1), tokens = int64_t(v.v.size()) / (sources * dim);
  Request r;
  r.what = "op.depth_mix";
  r.options = {"--backward", "--attr", "eps=" + toml(f.number("eps", 1e-5))};
  for (int64_t i = 0; i < sources; ++i) r.in["in." + std::to_string(i)] = reshaped(row(v, i), {tokens, dim});
  const std::string norm_at = std::to_string(sources), query_at = std::to_string(sources + 1);
  r.in["in." + norm_at] = f.at("in.norm");
  r.in["in." + query_at] = f.at("in.query");
  r.in["in.up_0"] = reshaped(f.at("in.up"), {tokens, dim});
  const Arrays got = probe.run(r);
  if (f.has("out.h")) check.compare("out.h", got, "out.0");
  if (f.has("grad.norm")) check.compare("grad.norm", got, "grad." + norm_at);
  if (f.has("grad.query")) check.compare("grad.query", got, "grad." + query_at);
  if (!f.has("grad.v")) return;
  Array all;
  for (int64_t i = 0; i < sources; ++i) {
    const auto g = got.find("grad." + std::to_string(i));
    if (g == got.end()) return check.compare("grad.v", got, "grad." + std::to_string(i));
    all.v.insert(all.v.end(), g->second.v.begin(), g->second.v.end());
  }
  check.compare("grad.v", all);
}

}  // namespace check_vectors
