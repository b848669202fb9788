// manifest.h: what a plugin says of itself in its `kitbash` section, read without running any of its code.
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "plugin/problems.h"

namespace kitbash {

using FieldValue = std::variant<bool, int64_t, double, std::string, std::vector<int64_t>, std::vector<double>>;

struct FieldInfo {
  std::string name, type, doc;         // type: bool int float text path slot ints floats
  std::optional<FieldValue> fallback;  // the default; none for a required key
  std::string kind;                    // slot: kind of the child
  double lo = -std::numeric_limits<double>::infinity(), hi = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices;
  std::string was;
  bool required = false, optional = false, flat = false;
};

struct PluginInfo;
struct ComponentInfo {
  std::string kind, name;
  std::vector<FieldInfo> fields;  // in the order in which the plugin wants the values
  const PluginInfo* plugin = nullptr;
  std::string id() const { return kind + "." + name; }
  const FieldInfo* field(const std::string& name) const;
};

struct KernelInfo {
  std::string op, name, device;
};

struct PluginInfo {
  std::string path;  // canonical, absolute
  std::string id, version, license, built_with;
  int64_t abi_major = 0, needs_minor = 0, built_minor = 0;
  std::vector<ComponentInfo> components;
  std::vector<std::string> ops;
  std::vector<KernelInfo> kernels;
  std::string text;  // the manifest itself
};

// Parses the text of a manifest section; throws kb::Error "<path> has a bad manifest: ...". Unknown keys are ignored,
// since newer SDKs add some. Of a plugin for another ABI, what can be understood is returned. Pointers to the plugin
// are not set.
PluginInfo parse_manifest(const std::string& text, const std::string& path);

// Whether this program speaks the plugin's ABI: predicates for refusal(), none if it does.
Problems abi_problems(const PluginInfo& p);

}  // namespace kitbash
