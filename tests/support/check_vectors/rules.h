// rules.h: how each sort of vector file is fed to the probe. A rule takes every size from the shapes and every setting
// from the header; both vary between files.
#pragma once
#include "check.h"
#include "probe.h"

namespace check_vectors {

using Rule = void (*)(const VectorFile&, Probe&, Check&);

void kda(const VectorFile&, Probe&, Check&);
void kda_layer(const VectorFile&, Probe&, Check&);
void gated_mla(const VectorFile&, Probe&, Check&);
void latent_moe(const VectorFile&, Probe&, Check&);
void quantile_balance(const VectorFile&, Probe&, Check&);
void situ_glu(const VectorFile&, Probe&, Check&);
void attn_res_mix(const VectorFile&, Probe&, Check&);
void model(const VectorFile&, Probe&, Check&);
void adamw(const VectorFile&, Probe&, Check&);
void muon(const VectorFile&, Probe&, Check&);

std::string toml(double v);  // a float with all its digits
// key = value lines of one component, from the shapes below `prefix` ("param.", "param.layers.3.attn."); each ends with
// \n.
std::string kda_keys(const VectorFile& f, const std::string& prefix, const std::string& decay);
std::string latent_moe_keys(const VectorFile& f, const std::string& prefix, int64_t active, int64_t tokens);
std::string decay_value(const std::string& gate, double floor);                  // { use = "bounded", floor = -5.0 }
std::string router_lines(int64_t tokens);                                        // of router.quantile
double tie_tolerance(const Probe& probe);                                        // of biased scores; 0 in double
void copy_prefixed(const VectorFile& f, const std::string& prefix, Arrays& to);  // param.* -> param.*

}  // namespace check_vectors
