// registry.h: plugins that are loaded, on first use and for good, and the tables they brought.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "kitbash/abi.h"
#include "plugin/catalog.h"

namespace kitbash {

struct OpDef {
  const kb_op* table = nullptr;
  std::string name, provider;  // provider: plugin id, or "core"
};

struct LoadedPlugin {
  const PluginInfo* info;
  const kb_plugin* table;
  std::shared_ptr<void> library;  // stays mapped while the process runs, whoever drops this
};

// A component's table may end before these fields, when its plugin is older than they are; read them through here only.
// (Everything else in the tables that the registry hands out is present, and required pointers are not null.)
inline const void* service_of(const kb_component& c) { return KB_HAS(kb_component, &c, service) ? c.service : nullptr; }

class Registry {
 public:
  explicit Registry(Catalog catalog) : catalog_(std::move(catalog)) {}
  Registry(const Registry&) = delete;
  ~Registry();  // calls shutdown() of the plugins in reverse order of loading

  const Catalog& catalog() const { return catalog_; }
  // `p` is of this catalog. Idempotent. Throws kb::Error, which begins with the file's path and gives the reasons.
  const LoadedPlugin& load(const PluginInfo& p);
  const kb_component& component(const ComponentInfo& c);  // loads; throws also if two plugins provide it
  const std::vector<std::unique_ptr<LoadedPlugin>>& loaded() const { return loaded_; }  // in order of loading
  // Base ops are registered by the core before anything else; plugin ops load their plugin on first use. null: none.
  void add_base_op(const kb_op* op);
  const OpDef* op(const std::string& name);
  // Every kernel for the op on the device, highest priority first; loads the plugins that offer them.
  struct KernelDef {
    const kb_kernel* table;
    std::string provider;
  };
  const std::vector<KernelDef>& kernels(const std::string& op, kb_device_kind device);
  const kb_backend& backend(kb_device_kind device);  // throws if there is none

 private:
  std::string where_is(const std::string& provider) const;
  Catalog catalog_;
  std::vector<std::unique_ptr<LoadedPlugin>> loaded_;  // in order of loading
  std::unordered_map<std::string, std::unique_ptr<OpDef>> ops_;
  std::map<std::string, std::vector<KernelDef>> kernels_;  // "op@device"
};

}  // namespace kitbash
