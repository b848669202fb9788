// catalog.h: every plugin that can be found, by manifest alone. Nothing is loaded here.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plugin/manifest.h"

namespace kitbash {

struct SearchPlace {
  std::string folder, origin;  // origin: "--plugin-path", "KITBASH_PLUGIN_PATH", "XDG_DATA_HOME", "prefix"
  bool exists = false;
  std::vector<std::string> files;  // libkb_*.so in it, sorted
};
// The places in order: --plugin-path, $KITBASH_PLUGIN_PATH (colon separated), $XDG_DATA_HOME/kitbash/plugins (or
// ~/.local/share), <prefix>/lib/kitbash/plugins, where prefix is the folder above the one of the program.
std::vector<SearchPlace> search_places(const std::vector<std::string>& plugin_path);

class Catalog {
 public:
  // Reads all manifests. A broken or untrusted libkb_*.so is a warning that names it; one for another ABI is a warning
  // too, but is listed, so that using it gives the reason. The same component id in two files is an error when it is
  // used, not a shadow. Nothing but libkb_*.so is looked at, and no folder below.
  static Catalog discover(const std::vector<std::string>& plugin_path);
  static Catalog from_files(const std::vector<std::string>& paths);  // exactly these; throws on the first broken one
  static Catalog from_manifests(
      const std::vector<std::string>& texts);  // without files, for tests of what reads a catalog

  const std::vector<std::unique_ptr<PluginInfo>>& plugins() const { return plugins_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  const ComponentInfo* find(const std::string& kind,
                            const std::string& name) const;                  // null: none; throws: two provide it
  std::vector<const ComponentInfo*> of_kind(const std::string& kind) const;  // by name
  std::vector<std::string> kinds() const;
  const PluginInfo* with_op(const std::string& op) const;  // null: none; throws: two provide it
  std::vector<const PluginInfo*> with_kernel_for(const std::string& op, const std::string& device) const;
  const PluginInfo* backend(const std::string& device) const;  // the plugin whose id is "backend-<device>"; null: none

 private:
  void add(std::unique_ptr<PluginInfo> p);
  std::vector<std::unique_ptr<PluginInfo>> plugins_;
  std::vector<std::string> warnings_;
  std::map<std::string, std::vector<const ComponentInfo*>> components_;  // "kind.name"
};

}  // namespace kitbash
