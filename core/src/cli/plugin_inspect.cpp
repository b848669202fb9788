// plugin inspect: everything a plugin says of itself in its manifest. None of its code runs.
#include <iostream>
#include <memory>

#include "base/table.h"
#include "cli/fields.h"
#include "cli/json.h"
#include "cli/verb.h"
#include "kitbash/error.h"

namespace kitbash {
namespace {

void print_text(const PluginInfo& p) {
  Table about({"", ""});
  about.row({"plugin", p.id});
  about.row({"version", p.version});
  about.row({"license", p.license});
  about.row({"file", p.path});
  about.row({"plugin ABI", std::to_string(p.abi_major) + ", needs minor " + std::to_string(p.needs_minor) +
                               ", built with minor " + std::to_string(p.built_minor)});
  about.row({"compiler", p.built_with});
  std::cout << about.text();
  for (const ComponentInfo& c : p.components) std::cout << "\ncomponent " << c.id() << "\n" << fields_table(c, "  ");
  if (!p.ops.empty()) {
    std::cout << "\nops\n";
    for (const std::string& op : p.ops) std::cout << "  " << op << "\n";
  }
  if (!p.kernels.empty()) {
    Table kernels({"op", "kernel", "device"});
    for (const KernelInfo& k : p.kernels) kernels.row({k.op, k.name, k.device});
    std::cout << "\nkernels\n" << kernels.text("  ");
  }
}

void print_json(const PluginInfo& p) {
  nlohmann::ordered_json j = {{"plugin", p.id},
                              {"version", p.version},
                              {"license", p.license},
                              {"path", p.path},
                              {"abi_major", p.abi_major},
                              {"needs_minor", p.needs_minor},
                              {"built_minor", p.built_minor},
                              {"built_with", p.built_with}};
  j["components"] = nlohmann::ordered_json::array();
  for (const ComponentInfo& c : p.components) j["components"].push_back(component_json(c));
  j["ops"] = p.ops;
  j["kernels"] = nlohmann::ordered_json::array();
  for (const KernelInfo& k : p.kernels) j["kernels"].push_back({{"op", k.op}, {"name", k.name}, {"device", k.device}});
  std::cout << json_text(j) << "\n";
}

}  // namespace

void add_plugin_inspect(CLI::App& group, Globals& g) {
  CLI::App* verb = group.add_subcommand("inspect", "print the manifest of a plugin file; runs none of its code");
  auto file = std::make_shared<std::string>();
  verb->add_option("file", *file, "the plugin library")->type_name("FILE")->required();
  common_options(*verb, g, true, "kitbash plugin inspect build/lib/kitbash/plugins/libkb_attention_kda.so");
  verb->callback([&g, file] {
    if (file->empty()) kb::fail("[plugin inspect] the plugin library must be named but got an empty name");
    const Catalog catalog = Catalog::from_files({*file});
    const PluginInfo& p = *catalog.plugins().front();
    g.json ? print_json(p) : print_text(p);
  });
}

}  // namespace kitbash
