#include "plugin/registry.h"

#include <algorithm>

#include "kitbash/error.h"
#include "plugin/inspect_file.h"
#include "plugin/load/library.h"
#include "plugin/load/table_check.h"

namespace kitbash {
namespace {

const char* device_name(kb_device_kind d) { return d == KB_CPU ? "cpu" : "cuda"; }

// The plugin's own code: nothing may come out of it but a table.
const kb_plugin* call_entry(const Library& lib) {
  try {
    return lib.entry();
  } catch (const std::exception& e) {
    kb::fail("threw an exception in kitbash_plugin_v1(): ", e.what());
  } catch (...) {
    kb::fail("threw an exception in kitbash_plugin_v1()");
  }
}

}  // namespace

Registry::~Registry() {
  for (auto it = loaded_.rbegin(); it != loaded_.rend(); ++it) {
    const kb_plugin* t = (*it)->table;
    if (--std::static_pointer_cast<Library>((*it)->library)->users > 0)
      continue;  // another registry still works with it
    if (KB_HAS(kb_plugin, t, shutdown) && t->shutdown) t->shutdown();
  }
}

const LoadedPlugin& Registry::load(const PluginInfo& p) {
  for (const auto& l : loaded_)
    if (l->info == &p) return *l;

  // Before any of its code runs: all of it again, since the file may have changed since it was listed.
  const Inspection now = inspect_file(p.path);
  Problems problems = now.all();
  if (now.broken.empty() && now.info.text != p.text)
    problems.push_back("has changed since its manifest was read. Start kitbash again");
  if (!problems.empty()) throw kb::Error(refusal(p.path, problems));

  auto l = std::make_unique<LoadedPlugin>();
  l->info = &p;
  try {
    const auto lib = open_library(p.path);
    if (!lib->entry)
      kb::fail(
          "has no function kitbash_plugin_v1. Does its source end with KITBASH_PLUGIN(...), and is it linked with "
          "kitbash_add_plugin()?");
    l->table = call_entry(*lib);
    l->library = lib;
  } catch (const kb::Error& e) {
    throw kb::Error(refusal(p.path, {e.what()}));
  }
  problems = table_problems(l->table, p);
  if (problems.empty())
    for (uint32_t i = 0; i < l->table->n_ops; ++i) {
      const auto it = ops_.find(l->table->ops[i]->name);
      if (it != ops_.end())
        problems.push_back(kb::text("holds op '", it->first, "', which is already provided by ",
                                    where_is(it->second->provider), ". Rename it, or remove one of the two"));
    }
  if (!problems.empty()) throw kb::Error(refusal(p.path, problems));

  for (uint32_t i = 0; i < l->table->n_ops; ++i) {
    const kb_op* op = l->table->ops[i];
    ops_[op->name] = std::make_unique<OpDef>(OpDef{op, op->name, p.id});
  }
  ++std::static_pointer_cast<Library>(l->library)->users;
  loaded_.push_back(std::move(l));
  return *loaded_.back();
}

std::string Registry::where_is(const std::string& provider) const {
  for (const auto& l : loaded_)
    if (l->info->id == provider) return l->info->path;
  return provider;
}

const kb_component& Registry::component(const ComponentInfo& c) {
  catalog_.find(c.kind, c.name);  // throws when two provide it
  const PluginInfo& p = *c.plugin;
  const LoadedPlugin& l = load(p);
  return *l.table->components[size_t(&c - p.components.data())];
}

void Registry::add_base_op(const kb_op* op) {
  const auto it = ops_.find(op->name);
  if (it != ops_.end())
    kb::fail("[registry] op '", op->name, "' is already provided by ", where_is(it->second->provider),
             "; base ops are added first, and once");
  ops_[op->name] = std::make_unique<OpDef>(OpDef{op, op->name, "core"});
}

const OpDef* Registry::op(const std::string& name) {
  const auto it = ops_.find(name);
  if (it != ops_.end()) return it->second.get();
  const PluginInfo* p = catalog_.with_op(name);
  if (!p) return nullptr;
  load(*p);
  return ops_.at(name).get();
}

const std::vector<Registry::KernelDef>& Registry::kernels(const std::string& op, kb_device_kind device) {
  const std::string key = op + "@" + device_name(device);
  const auto it = kernels_.find(key);
  if (it != kernels_.end()) return it->second;
  std::vector<KernelDef> found;
  for (const PluginInfo* p : catalog_.with_kernel_for(op, device_name(device))) {
    const kb_plugin& t = *load(*p).table;
    for (uint32_t i = 0; i < t.n_kernels; ++i)
      if (t.kernels[i]->device == uint32_t(device) && op == t.kernels[i]->op) found.push_back({t.kernels[i], p->id});
  }
  // Equal priorities: by name, so that the choice does not depend on the order of folders.
  std::stable_sort(found.begin(), found.end(), [](const KernelDef& a, const KernelDef& b) {
    if (a.table->priority != b.table->priority) return a.table->priority > b.table->priority;
    if (a.provider != b.provider) return a.provider < b.provider;
    return std::string(a.table->name) < b.table->name;
  });
  return kernels_[key] = std::move(found);
}

const kb_backend& Registry::backend(kb_device_kind device) {
  const PluginInfo* p = catalog_.backend(device_name(device));
  if (!p)
    kb::fail("[registry] there must be a plugin 'backend-", device_name(device), "' among the ",
             catalog_.plugins().size(),
             " plugins found, but there is none. `kitbash plugin path` lists the places that are searched",
             device == KB_CUDA ? "; it is built where there is nvcc" : "");
  const kb_plugin& t = *load(*p).table;
  const void* found = KB_HAS(kb_plugin, &t, extension) && t.extension ? t.extension("kitbash.backend") : nullptr;
  const auto* b = static_cast<const kb_backend*>(found);
  if (!b)
    throw kb::Error(refusal(p->path, {"is named as a backend, but extension(\"kitbash.backend\") gives no table"}));
  if (!KB_HAS(kb_backend, b, close) || !b->open || !b->close)
    throw kb::Error(refusal(p->path, {"has an incomplete backend table: 'open' and 'close' are required"}));
  if (b->kind != uint32_t(device))
    throw kb::Error(refusal(p->path, {kb::text("is named as the backend for ", device_name(device),
                                               ", but its table is for device kind ", b->kind)}));
  return *b;
}

}  // namespace kitbash
