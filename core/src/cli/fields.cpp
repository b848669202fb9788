#include "cli/fields.h"

#include <cmath>
#include <sstream>

#include "base/table.h"
#include "base/text.h"
#include "cli/json.h"

namespace kitbash {
namespace {

// The shortest decimal that reads back as the same number.
std::string number_text(double v) {
  for (int precision = 6; precision <= 17; ++precision) {
    std::ostringstream s;
    s.precision(precision);
    s << v;
    if (precision == 17 || std::stod(s.str()) == v) return s.str();
  }
  return "";
}

template <class E>
std::string list_text(const std::vector<E>& v) {
  std::vector<std::string> parts;
  for (const E& e : v) parts.push_back(value_text(FieldValue(e)));
  return "[" + join(parts, ", ") + "]";
}

std::string default_text(const FieldInfo& f) {
  if (f.required || !f.fallback) return "(required)";
  if (f.type == "slot") {
    const auto* use = std::get_if<std::string>(&*f.fallback);
    return use && !use->empty() ? *use : "(none)";
  }
  return value_text(*f.fallback);
}

std::string range_text(const FieldInfo& f) {
  if (f.type == "slot") return f.kind;
  if (!f.choices.empty()) return join(f.choices, " | ");
  const bool low = std::isfinite(f.lo), high = std::isfinite(f.hi);
  if (low && high) return number_text(f.lo) + " .. " + number_text(f.hi);
  if (low) return ">= " + number_text(f.lo);
  if (high) return "<= " + number_text(f.hi);
  return "";
}

std::string doc_text(const FieldInfo& f) {
  std::string doc = f.doc;
  if (f.optional) doc += " (may be empty)";
  if (!f.was.empty()) doc += " (was: " + f.was + ")";
  return doc;
}

}  // namespace

std::string value_text(const FieldValue& v) {
  struct {
    std::string operator()(bool b) const { return b ? "true" : "false"; }
    std::string operator()(int64_t i) const { return std::to_string(i); }
    std::string operator()(double d) const {
      const std::string s = number_text(d);
      return s.find_first_of(".en") == s.npos ? s + ".0" : s;
    }
    std::string operator()(const std::string& s) const { return json_text(nlohmann::json(s), -1); }
    std::string operator()(const std::vector<int64_t>& l) const { return list_text(l); }
    std::string operator()(const std::vector<double>& l) const { return list_text(l); }
  } print;
  return std::visit(print, v);
}

std::string fields_table(const ComponentInfo& c, const std::string& indent) {
  if (c.fields.empty()) return indent + "(no keys)\n";
  Table t({"key", "type", "default", "range", "meaning"});
  for (const FieldInfo& f : c.fields) t.row({f.name, f.type, default_text(f), range_text(f), doc_text(f)});
  return t.text(indent);
}

nlohmann::ordered_json component_json(const ComponentInfo& c) {
  nlohmann::ordered_json j = {{"kind", c.kind}, {"name", c.name}};
  if (c.plugin) {
    j["plugin"] = c.plugin->id;
    j["version"] = c.plugin->version;
    j["path"] = c.plugin->path;
  }
  j["keys"] = nlohmann::ordered_json::array();
  for (const FieldInfo& f : c.fields) {
    nlohmann::ordered_json k = {{"name", f.name}, {"type", f.type}, {"doc", f.doc}};
    if (f.fallback && !f.required) std::visit([&](const auto& v) { k["default"] = v; }, *f.fallback);
    if (!f.kind.empty()) k["kind"] = f.kind;
    if (std::isfinite(f.lo)) k["min"] = f.lo;
    if (std::isfinite(f.hi)) k["max"] = f.hi;
    if (!f.choices.empty()) k["choices"] = f.choices;
    if (!f.was.empty()) k["was"] = f.was;
    if (f.required) k["required"] = true;
    if (f.optional) k["optional"] = true;
    j["keys"].push_back(std::move(k));
  }
  return j;
}

}  // namespace kitbash
