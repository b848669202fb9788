#include <cstdio>

#include "recipe/compose.h"

namespace kitbash {
namespace {

std::string quoted(const std::string& s) {
  std::string r = "\"";
  for (const char c : s) {
    if (c == '"' || c == '\\') {
      r += '\\', r += c;
    } else if (c == '\n') {
      r += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char buf[8];
      std::snprintf(buf, sizeof buf, "\\u%04X", unsigned(static_cast<unsigned char>(c)));
      r += buf;
    } else {
      r += c;
    }
  }
  return r + "\"";
}

std::string key(const std::string& s) {
  const bool bare =
      !s.empty() &&
      s.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == std::string::npos;
  return bare ? s : quoted(s);
}

struct Print {
  std::string operator()(bool b) const { return b ? "true" : "false"; }
  std::string operator()(int64_t i) const { return std::to_string(i); }
  std::string operator()(double d) const { return number_text(d); }
  std::string operator()(const std::string& s) const { return quoted(s); }
  template <class T>
  std::string operator()(const std::vector<T>& list) const {
    std::string s = "[";
    for (size_t i = 0; i < list.size(); ++i) s += (i ? ", " : "") + (*this)(list[i]);
    return s + "]";
  }
};
template <class T>
std::string line(const std::string& k, const T& v) {
  return key(k) + " = " + Print{}(v) + "\n";
}

std::string mix_line(const std::map<std::string, double>& mix) {
  std::string s;
  for (const auto& [name, share] : mix) s += (s.empty() ? "" : ", ") + key(name) + " = " + number_text(share);
  return s.empty() ? "" : "mix = { " + s + " }\n";
}

// [path] use = ..., its keys, then its children as tables of their own. An empty slot is the empty name.
std::string component(const std::string& path, const ComponentConfig& c) {
  std::string s = "\n[" + path + "]\n" + line("use", c.info->name), below;
  for (size_t i = 0; i < c.values.size(); ++i) {
    const FieldInfo& f = c.info->fields[i];
    const auto child = c.children.find(f.name);
    if (f.type != "slot")
      s += key(f.name) + " = " + std::visit(Print{}, c.values[i]) + "\n";
    else if (child == c.children.end())
      s += line(f.name, std::string());
    else
      below += component(path + "." + key(f.name), *child->second);
  }
  return s + below;
}

}  // namespace

std::string resolved_text(const Recipe& r) {
  std::string s = line("kitbash", int64_t(1)) + line("name", r.name);
  const ModelConfig& m = r.model;
  s += "\n[model]\n" + line("dim", m.dim) + line("layers", int64_t(m.layers.size())) + line("vocab", m.vocab) +
       line("std", m.std) + line("pattern", r.pattern);
  if (!r.at.empty()) {
    std::string at;
    for (const auto& [i, name] : r.at) at += (at.empty() ? "" : ", ") + std::to_string(i) + " = " + quoted(name);
    s += "at = { " + at + " }\n";
  }
  s += component("model.residual", *m.residual) + component("model.norm", *m.norm) +
       component("model.objective", *m.objective);
  for (const auto& [name, layer] : m.named) {
    const std::string path = "model.layer." + key(name);
    s += component(path + ".attention", *layer.attention) + component(path + ".ffn", *layer.ffn);
  }
  s += component("optimizer", *r.optimizer);
  s += "\n[train]\n" + line("seed", r.train.seed) + line("compute", r.train.compute) +
       line("recompute", r.train.recompute) + line("clip", r.train.clip) +
       line("deterministic", r.train.deterministic) + line("checkpoint_every", r.train.checkpoint_every) +
       line("keep", r.train.keep) + line("log_every", r.train.log_every) + line("eval_tokens", r.train.eval_tokens);
  if (r.data.tokenizer) {
    s += "\n[data]\n" + line("join", r.data.join) + line("interleave", r.data.interleave) +
         component("data.tokenizer", *r.data.tokenizer);
    for (const auto& [name, source] : r.data.sources) s += component("data.sources." + key(name), *source);
  }
  for (const auto& stage : r.curriculum) {
    s += "\n[[curriculum]]\n" + line("name", stage.name) + line("context", stage.context) +
         line("tokens", stage.tokens) + line("batch_tokens", stage.batch_tokens) +
         line("micro_tokens", stage.micro_tokens) + line("max_documents", stage.max_documents) + line("lr", stage.lr) +
         mix_line(stage.mix) + component("curriculum.schedule", *stage.schedule);
  }
  return s;
}

}  // namespace kitbash
