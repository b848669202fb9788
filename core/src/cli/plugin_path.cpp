// plugin path: where plugins are searched, in order, and what each place holds.
#include <filesystem>
#include <iostream>

#include "cli/json.h"
#include "cli/verb.h"

namespace kitbash {
namespace {

void run(const Globals& g) {
  const std::vector<SearchPlace> places = search_places(g.plugin_path);
  if (g.json) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const SearchPlace& p : places)
      all.push_back({{"folder", p.folder}, {"origin", p.origin}, {"exists", p.exists}, {"files", p.files}});
    std::cout << json_text(nlohmann::ordered_json{{"places", all}}) << "\n";
    return;
  }
  int number = 0;
  for (const SearchPlace& p : places) {
    std::cout << ++number << ". " << p.folder << "  (" << p.origin << ")\n";
    if (!p.exists) std::cout << "   does not exist\n";
    if (p.exists && p.files.empty()) std::cout << "   holds no libkb_*.so\n";
    for (const std::string& f : p.files) std::cout << "   " << std::filesystem::path(f).filename().string() << "\n";
  }
}

}  // namespace

void add_plugin_path(CLI::App& group, Globals& g) {
  CLI::App* verb = group.add_subcommand("path", "show where plugins are searched, in order, and what each place holds");
  common_options(*verb, g, true, "kitbash plugin path --plugin-path build/lib/kitbash/plugins");
  verb->callback([&g] { run(g); });
}

}  // namespace kitbash
