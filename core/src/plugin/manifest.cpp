#include "plugin/manifest.h"

#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <set>
#include <sstream>

#include "base/nesting.h"
#include "kitbash/error.h"

namespace kitbash {
namespace {

const char* type_word(const toml::node& n) {
  switch (n.type()) {
    case toml::node_type::string:
      return "text";
    case toml::node_type::integer:
      return "int";
    case toml::node_type::floating_point:
      return "float";
    case toml::node_type::boolean:
      return "bool";
    case toml::node_type::array:
      return "array";
    case toml::node_type::table:
      return "table";
    default:
      return "date or time";
  }
}

[[noreturn]] void wrong(const std::string& where, std::string_view key, const char* want, const toml::node& got) {
  kb::fail(where, "'", key, "' must be ", want, " but got ", type_word(got), " (line ", got.source().begin.line, ")");
}

// One table of the manifest; `where` names it in messages.
struct Entry {
  const toml::table& t;
  std::string where;

  const toml::node& need(std::string_view key) const {
    const toml::node* n = t.get(key);
    if (!n) kb::fail(where, "'", key, "' is missing");
    return *n;
  }
  std::string text(std::string_view key) const {
    const toml::node& n = need(key);
    if (!n.is_string()) wrong(where, key, "text", n);
    return plain(n.as_string()->get(), key);
  }
  std::string text_or_empty(std::string_view key) const { return t.contains(key) ? text(key) : std::string(); }
  // Manifests are shown on terminals: no control characters but line ends and tabs.
  std::string plain(const std::string& s, std::string_view key) const {
    for (unsigned char c : s)
      if ((c < 32 && c != '\n' && c != '\t') || c == 127)
        kb::fail(where, "'", key, "' holds the control character ", int(c), "; only printable text is accepted");
    return s;
  }
  // Names are parts of recipe keys and file names.
  std::string name(std::string_view key, const char* extra = "-_") const {
    const std::string s = text(key);
    const bool good = !s.empty() && s.size() <= 64 && std::all_of(s.begin(), s.end(), [&](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
             std::string_view(extra).find(c) != std::string_view::npos;
    });
    if (!good) kb::fail(where, "'", key, "' must be 1 to 64 of a-z 0-9 ", extra, " but got '", s, "'");
    return s;
  }
  int64_t count(std::string_view key) const {
    const toml::node& n = need(key);
    if (!n.is_integer()) wrong(where, key, "int", n);
    const int64_t v = n.as_integer()->get();
    if (v < 0) kb::fail(where, "'", key, "' must be 0 or more but got ", v);
    return v;
  }
  double number_or(std::string_view key, double fallback) const {
    const toml::node* n = t.get(key);
    if (!n) return fallback;
    if (!n->is_number()) wrong(where, key, "a number", *n);
    return *n->value<double>();
  }
  bool flag(std::string_view key) const {
    const toml::node* n = t.get(key);
    if (n && !n->is_boolean()) wrong(where, key, "bool", *n);
    return n && n->as_boolean()->get();
  }
  // f(table, index from 1) for each element of an array of tables; none if there is no such key.
  template <class F>
  void each(std::string_view key, F&& f) const {
    const toml::node* n = t.get(key);
    if (!n) return;
    if (!n->is_array()) wrong(where, key, "an array of tables", *n);
    int i = 0;
    for (const toml::node& e : *n->as_array()) {
      if (!e.is_table()) wrong(where, key, "an array of tables", e);
      f(*e.as_table(), ++i);
    }
  }
};

FieldValue parse_default(const Entry& e, const std::string& type) {
  const toml::node& n = e.need("default");
  if (type == "bool") {
    if (!n.is_boolean()) wrong(e.where, "default", "bool", n);
    return n.as_boolean()->get();
  }
  if (type == "int") {
    if (!n.is_integer()) wrong(e.where, "default", "int", n);
    return n.as_integer()->get();
  }
  if (type == "float") return e.number_or("default", 0);
  if (type == "text" || type == "path" || type == "slot") return e.text("default");
  if (!n.is_array()) wrong(e.where, "default", "an array", n);
  std::vector<int64_t> ints;
  std::vector<double> floats;
  for (const toml::node& x : *n.as_array()) {
    if (type == "ints" ? !x.is_integer() : !x.is_number()) wrong(e.where, "default", type.c_str(), x);
    if (type == "ints")
      ints.push_back(x.as_integer()->get());
    else
      floats.push_back(*x.value<double>());
  }
  if (type == "ints") return ints;
  return floats;
}

FieldInfo parse_field(const toml::table& t, const std::string& owner, int i) {
  Entry e{t, kb::text(owner, ", field ", i, ": ")};
  FieldInfo f;
  f.name = e.name("name");
  e.where = kb::text(owner, ", field '", f.name, "': ");
  f.type = e.text("type");
  static constexpr std::array<const char*, 8> types = {"bool", "int",  "float", "text",
                                                       "path", "slot", "ints",  "floats"};
  if (std::find(types.begin(), types.end(), f.type) == types.end())
    kb::fail(e.where, "'type' must be bool, int, float, text, path, slot, ints or floats but got '", f.type, "'");
  f.doc = e.text_or_empty("doc");
  f.required = e.flag("required");
  f.optional = e.flag("optional");
  f.flat = e.flag("flat");
  if (t.contains("default")) f.fallback = parse_default(e, f.type);
  if (f.required == f.fallback.has_value())
    kb::fail(e.where, f.required ? "a required key has no 'default'" : "'default' is missing");
  if (f.type == "slot") f.kind = e.name("kind");
  f.lo = e.number_or("min", f.lo);
  f.hi = e.number_or("max", f.hi);
  if (!(f.lo <= f.hi)) kb::fail(e.where, "'min' must be at most 'max' but got ", f.lo, " and ", f.hi);
  if (const toml::node* n = t.get("choices")) {
    if (!n->is_array()) wrong(e.where, "choices", "an array of text", *n);
    for (const toml::node& c : *n->as_array()) {
      if (!c.is_string()) wrong(e.where, "choices", "an array of text", c);
      f.choices.push_back(e.plain(c.as_string()->get(), "choices"));
    }
  }
  f.was = e.text_or_empty("was");
  return f;
}

ComponentInfo parse_component(const toml::table& t, int i) {
  Entry e{t, kb::text("component ", i, ": ")};
  ComponentInfo c;
  c.kind = e.name("kind");
  c.name = e.name("name");
  const std::string owner = "component " + c.id();
  e.where = owner + ": ";
  std::set<std::string> seen;
  e.each("field", [&](const toml::table& f, int k) {
    c.fields.push_back(parse_field(f, owner, k));
    if (!seen.insert(c.fields.back().name).second) kb::fail(e.where, "has two fields '", c.fields.back().name, "'");
  });
  return c;
}

void parse_parts(const toml::table& t, PluginInfo& p) {
  const Entry top{t, ""};
  std::set<std::string> seen;
  const auto once = [&](const std::string& what) {
    if (!seen.insert(what).second) kb::fail("lists ", what, " twice");
  };
  top.each("component", [&](const toml::table& c, int i) {
    p.components.push_back(parse_component(c, i));
    once("component " + p.components.back().id());
  });
  top.each("op", [&](const toml::table& o, int i) {
    p.ops.push_back(Entry{o, kb::text("op ", i, ": ")}.name("name", "-_."));
    once("op '" + p.ops.back() + "'");
  });
  top.each("kernel", [&](const toml::table& k, int i) {
    const Entry e{k, kb::text("kernel ", i, ": ")};
    KernelInfo info{e.name("op", "-_."), e.name("name", "-_."), e.text("device")};
    if (info.device != "cpu" && info.device != "cuda")
      kb::fail(e.where, "'device' must be cpu or cuda but got '", info.device, "'");
    once("kernel '" + info.name + "' of op '" + info.op + "' on " + info.device);
    p.kernels.push_back(std::move(info));
  });
}

PluginInfo parse(const std::string& text, const std::string& path) {
  if (const auto deep = too_deep(text)) kb::fail(deep->message, " (line ", deep->line, ", column ", deep->column, ")");
  toml::table t;
  try {
    t = toml::parse(std::string_view(text), path);
  } catch (const toml::parse_error& e) {
    kb::fail("no valid TOML: ", e.description(), " (line ", e.source().begin.line, ", column ", e.source().begin.column,
             ")");
  }
  const Entry top{t, ""};
  PluginInfo p;
  p.path = path;
  p.text = text;
  p.abi_major = top.count("kitbash");
  try {
    p.needs_minor = top.count("needs");
    p.built_minor = top.count("built_minor");
    p.id = top.name("plugin", "-_.");
    p.version = top.text("version");
    p.license = top.text_or_empty("license");
    p.built_with = top.text_or_empty("built_with");
    parse_parts(t, p);
  } catch (const kb::Error&) {
    // A manifest for another ABI may be written in a way that this version does not know. What was understood is kept,
    // so that a recipe that names a component of it gets the ABI sentence and not "no such component".
    if (abi_problems(p).empty()) throw;
  }
  return p;
}

}  // namespace

const FieldInfo* ComponentInfo::field(const std::string& wanted) const {
  for (const FieldInfo& f : fields)
    if (f.name == wanted) return &f;
  return nullptr;
}

Problems abi_problems(const PluginInfo& p) {
  if (p.abi_major != KB_ABI_MAJOR)
    return {kb::text("speaks plugin ABI ", p.abi_major, "; this kitbash speaks ", KB_ABI_MAJOR,
                     ". Rebuild it with this SDK, or use kitbash ", p.abi_major, ".x")};
  if (p.needs_minor > KB_ABI_MINOR)
    return {kb::text("needs plugin ABI ", p.abi_major, ".", p.needs_minor, " (built with ", p.abi_major, ".",
                     p.built_minor, "); this kitbash has ", KB_ABI_MAJOR, ".", KB_ABI_MINOR,
                     ". Update kitbash to one that has at least ", p.abi_major, ".", p.needs_minor)};
  return {};
}

PluginInfo parse_manifest(const std::string& text, const std::string& path) {
  try {
    return parse(text, path);
  } catch (const kb::Error& e) {
    kb::fail(path, " has a bad manifest: ", e.what());
  }
}

}  // namespace kitbash
