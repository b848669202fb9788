#include "plugin/catalog.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "kitbash/error.h"
#include "plugin/inspect_file.h"
#include "plugin/trust.h"

namespace kitbash {
namespace {

namespace fs = std::filesystem;

std::string canonical_path(const fs::path& p) {
  std::error_code ec;
  const fs::path c = fs::canonical(p, ec);
  if (!ec) return c.string();
  const fs::path whole = fs::absolute(p, ec);
  return ec ? p.string() : whole.lexically_normal().string();
}

bool is_plugin_name(const std::string& n) {
  return n.size() > 9 && n.compare(0, 6, "libkb_") == 0 && n.compare(n.size() - 3, 3, ".so") == 0;
}

SearchPlace look_into(const fs::path& folder, const char* origin) {
  SearchPlace p;
  p.folder = canonical_path(folder);
  p.origin = origin;
  std::error_code ec;
  fs::directory_iterator it(p.folder, ec), end;
  p.exists = !ec;
  for (; !ec && it != end; it.increment(ec))
    if (is_plugin_name(it->path().filename().string())) p.files.push_back(it->path().string());
  std::sort(p.files.begin(), p.files.end());
  return p;
}

std::string variable(const char* name) {
  const char* v = std::getenv(name);
  return v ? v : "";
}

}  // namespace

std::vector<SearchPlace> search_places(const std::vector<std::string>& plugin_path) {
  std::vector<SearchPlace> out;
  for (const std::string& folder : plugin_path)
    if (!folder.empty()) out.push_back(look_into(folder, "--plugin-path"));

  // An empty element is skipped: it must not mean the current folder.
  const std::string list = variable("KITBASH_PLUGIN_PATH");
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(':', begin), list.size());
    if (end > begin) out.push_back(look_into(list.substr(begin, end - begin), "KITBASH_PLUGIN_PATH"));
    begin = end + 1;
  }

  fs::path data = variable("XDG_DATA_HOME");
  if (!data.is_absolute()) {  // the XDG rule: a relative one is ignored
    const fs::path home = variable("HOME");
    data = home.is_absolute() ? home / ".local/share" : fs::path();
  }
  if (!data.empty()) out.push_back(look_into(data / "kitbash/plugins", "XDG_DATA_HOME"));

  std::error_code ec;
  const fs::path program = fs::read_symlink("/proc/self/exe", ec);
  if (!ec) out.push_back(look_into(program.parent_path().parent_path() / "lib/kitbash/plugins", "prefix"));
  return out;
}

Catalog Catalog::discover(const std::vector<std::string>& plugin_path) {
  Catalog c;
  std::set<std::string> seen;  // one file may be reachable from two places; it is still one plugin
  for (const SearchPlace& place : search_places(plugin_path)) {
    if (!place.exists && place.origin == "--plugin-path")
      c.warnings_.push_back(place.folder + " (--plugin-path) is not a folder that can be read");
    if (place.files.empty()) continue;
    const Problems folder = distrust_folder(place.folder);
    if (!folder.empty()) {  // once, not for each file in it
      c.warnings_.push_back(refusal(place.folder, folder));
      continue;
    }
    for (const std::string& file : place.files) {
      const std::string path = canonical_path(file);
      if (!seen.insert(path).second) continue;
      Inspection r = inspect_file(path);
      const Problems problems = r.all();
      if (!problems.empty()) c.warnings_.push_back(refusal(path, problems));
      if (r.broken.empty()) c.add(std::make_unique<PluginInfo>(std::move(r.info)));
    }
  }
  return c;
}

Catalog Catalog::from_files(const std::vector<std::string>& paths) {
  Catalog c;
  std::set<std::string> seen;
  for (const std::string& p : paths) {
    const std::string path = canonical_path(p);
    if (!seen.insert(path).second) continue;
    Inspection r = inspect_file(path);
    if (!r.broken.empty()) throw kb::Error(refusal(path, r.all()));
    if (!r.incompatible.empty()) c.warnings_.push_back(refusal(path, r.incompatible));
    c.add(std::make_unique<PluginInfo>(std::move(r.info)));
  }
  return c;
}

Catalog Catalog::from_manifests(const std::vector<std::string>& texts) {
  Catalog c;
  for (size_t i = 0; i < texts.size(); ++i)
    c.add(std::make_unique<PluginInfo>(parse_manifest(texts[i], "manifest " + std::to_string(i + 1))));
  return c;
}

void Catalog::add(std::unique_ptr<PluginInfo> p) {
  for (ComponentInfo& comp : p->components) {
    comp.plugin = p.get();
    components_[comp.id()].push_back(&comp);
  }
  plugins_.push_back(std::move(p));
}

const ComponentInfo* Catalog::find(const std::string& kind, const std::string& name) const {
  const auto it = components_.find(kind + "." + name);
  if (it == components_.end()) return nullptr;
  const auto& found = it->second;
  if (found.size() > 1)
    kb::fail(found[1]->plugin->path, " holds ", found[0]->id(), ", which is already provided by ",
             found[0]->plugin->path, ". Remove one of the two files");
  return found[0];
}

std::vector<const ComponentInfo*> Catalog::of_kind(const std::string& kind) const {
  std::vector<const ComponentInfo*> out;
  for (const auto& [id, list] : components_)
    if (list[0]->kind == kind) out.insert(out.end(), list.begin(), list.end());
  return out;  // the map is sorted by id, so these are sorted by name
}

std::vector<std::string> Catalog::kinds() const {
  std::set<std::string> all;
  for (const auto& entry : components_) all.insert(entry.second[0]->kind);
  return {all.begin(), all.end()};
}

const PluginInfo* Catalog::with_op(const std::string& op) const {
  const PluginInfo* found = nullptr;
  for (const auto& p : plugins_) {
    if (std::find(p->ops.begin(), p->ops.end(), op) == p->ops.end()) continue;
    if (found)
      kb::fail(p->path, " holds op '", op, "', which is already provided by ", found->path,
               ". Remove one of the two files");
    found = p.get();
  }
  return found;
}

std::vector<const PluginInfo*> Catalog::with_kernel_for(const std::string& op, const std::string& device) const {
  std::vector<const PluginInfo*> out;
  for (const auto& p : plugins_)
    if (std::any_of(p->kernels.begin(), p->kernels.end(),
                    [&](const KernelInfo& k) { return k.op == op && k.device == device; }))
      out.push_back(p.get());
  return out;
}

const PluginInfo* Catalog::backend(const std::string& device) const {
  const PluginInfo* found = nullptr;
  for (const auto& p : plugins_) {
    if (p->id != "backend-" + device) continue;
    if (found)
      kb::fail(p->path, " is a backend for ", device, ", which is already provided by ", found->path,
               ". Remove one of the two files");
    found = p.get();
  }
  return found;
}

}  // namespace kitbash
