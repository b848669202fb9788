#include "plugin/load/table_check.h"

#include "kitbash/error.h"

namespace kitbash {
namespace {

const char* device_word(uint32_t device) { return device == KB_CPU ? "cpu" : device == KB_CUDA ? "cuda" : "?"; }
std::string shown(const char* s) { return s ? s : "(null)"; }

class Check {
 public:
  Problems problems;

  template <class... A>
  void say(const A&... parts) {
    problems.push_back(kb::text(parts...));
  }

  // Whether `count` agrees with the manifest and every element is there with at least `need` bytes.
  template <class T>
  bool array(const char* what, size_t listed, const T* const* list, uint32_t count, size_t need) {
    if (listed != count) {
      const char* plural = listed == 1 ? "" : "s";
      say("disagrees with itself: manifest lists ", listed, " ", what, plural, ", the table has ", count,
          ". Rebuild it");
      return false;
    }
    if (count && !list) {
      say("has ", count, " ", what, count == 1 ? "" : "s", " in its table, but no list of them (null)");
      return false;
    }
    bool whole = true;
    for (uint32_t i = 0; i < count; ++i) {
      if (!list[i]) {
        say("has a table whose ", what, " ", i + 1, " is null");
        whole = false;
      } else if (list[i]->struct_size < need) {
        say("has a table whose ", what, " ", i + 1, " is ", list[i]->struct_size, " bytes; at least ", need,
            " are needed. Set struct_size with KB_STRUCT_SIZE");
        whole = false;
      }
    }
    return whole;
  }
  void same(const char* what, uint32_t i, const std::string& listed, const std::string& got) {
    if (listed != got)
      say("disagrees with itself: ", what, " ", i + 1, " is ", listed, " in the manifest, ", got,
          " in the table. Rebuild it");
  }
  void present(bool there, const std::string& owner, const char* function) {
    if (!there) say("has no function '", function, "' in its table of ", owner);
  }
};

void check_components(Check& c, const kb_plugin& t, const PluginInfo& info) {
  if (!c.array("component", info.components.size(), t.components, t.n_components, KB_STRUCT_SIZE(kb_component, build)))
    return;
  for (uint32_t i = 0; i < t.n_components; ++i) {
    const kb_component& e = *t.components[i];
    const std::string id = info.components[i].id();
    c.same("component", i, id, shown(e.kind) + "." + shown(e.name));
    c.present(e.create, id, "create");
    c.present(e.destroy, id, "destroy");
    const bool serves = KB_HAS(kb_component, &e, service) && e.service;
    if (!e.build && !serves) c.say("has neither 'build' nor 'service' in its table of ", id);
  }
}

void check_ops(Check& c, const kb_plugin& t, const PluginInfo& info) {
  if (!c.array("op", info.ops.size(), t.ops, t.n_ops, KB_STRUCT_SIZE(kb_op, traits))) return;
  for (uint32_t i = 0; i < t.n_ops; ++i) {
    const kb_op& e = *t.ops[i];
    const std::string owner = "op '" + info.ops[i] + "'";
    c.same("op", i, info.ops[i], shown(e.name));
    if (e.n_attr && !e.attr) c.say("has ", e.n_attr, " attributes of ", owner, ", but no list of them (null)");
    for (uint32_t k = 0; e.attr && k < e.n_attr; ++k)
      if (!e.attr[k].name || e.attr[k].kind < KB_INT || e.attr[k].kind > KB_FLOATS)
        c.say("has a table of ", owner, " whose attribute ", k + 1, " has no name or an unknown kind (", e.attr[k].kind,
              ")");
    c.present(e.infer, owner, "infer");
    c.present(e.cost, owner, "cost");
  }
}

void check_kernels(Check& c, const kb_plugin& t, const PluginInfo& info) {
  if (!c.array("kernel", info.kernels.size(), t.kernels, t.n_kernels, KB_STRUCT_SIZE(kb_kernel, release))) return;
  for (uint32_t i = 0; i < t.n_kernels; ++i) {
    const kb_kernel& e = *t.kernels[i];
    const KernelInfo& k = info.kernels[i];
    const std::string listed = kb::text("'", k.name, "' for op '", k.op, "' on ", k.device);
    c.same("kernel", i, listed,
           kb::text("'", shown(e.name), "' for op '", shown(e.op), "' on ", device_word(e.device)));
    c.present(e.launch, "kernel " + listed, "launch");
    if (e.prepare) c.present(e.release, "kernel " + listed + ", which has 'prepare'", "release");
  }
}

}  // namespace

Problems table_problems(const kb_plugin* table, const PluginInfo& info) {
  Check c;
  if (!table) {
    c.say("gives no table: kitbash_plugin_v1() returned null");
    return c.problems;
  }
  constexpr uint32_t need = KB_STRUCT_SIZE(kb_plugin, n_kernels);
  if (table->struct_size < need) {
    c.say("has a table of ", table->struct_size, " bytes; at least ", need,
          " are needed. Set struct_size with KB_STRUCT_SIZE");
    return c.problems;
  }
  const auto number = [&](const char* what, int64_t listed, uint32_t got) {
    if (listed != got)
      c.say("disagrees with itself: ", what, " is ", listed, " in the manifest, ", got, " in the table. Rebuild it");
  };
  number("the plugin ABI", info.abi_major, table->abi_major);
  number("the ABI minor that it needs", info.needs_minor, table->needs_minor);
  number("the ABI minor that it was built with", info.built_minor, table->built_with_minor);
  check_components(c, *table, info);
  check_ops(c, *table, info);
  check_kernels(c, *table, info);
  return c.problems;
}

}  // namespace kitbash
