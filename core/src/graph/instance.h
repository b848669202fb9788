// instance.h: a tree of created components, one for each use in a recipe.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plugin/registry.h"
#include "recipe/recipe.h"

namespace kitbash {

// Attribute values that outlive the call that brought them.
class OwnedAttrs {
 public:
  OwnedAttrs() = default;
  OwnedAttrs(const kb_attr* a, uint32_t n);
  const kb_attr* data() const { return attrs_.data(); }
  uint32_t size() const { return uint32_t(attrs_.size()); }

 private:
  std::vector<kb_attr> attrs_;
  std::vector<std::unique_ptr<char[]>> memory_;
};

struct Instance {
  const ComponentConfig* config = nullptr;
  const kb_component* table = nullptr;
  void* self = nullptr;
  std::map<std::string, std::unique_ptr<Instance>> children;  // by slot
  // Of the last build, which the update mode repeats.
  mutable std::string path;
  mutable OwnedAttrs attrs;

  Instance() = default;
  Instance(const Instance&) = delete;
  ~Instance();
  const std::string& kind() const { return config->info->kind; }
  std::string id() const { return config->info->id(); }
};

// Loads the plugins and creates the component with its children; throws with recipe position and id.
std::unique_ptr<Instance> create_instance(const ComponentConfig& c, Registry& registry, const kb_host* host);

}  // namespace kitbash
