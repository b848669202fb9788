#include <cerrno>
#include <cstdlib>
#include <iostream>

#include "base/text.h"
#include "cli/verb.h"
#include "kitbash/error.h"

namespace kitbash {

void common_options(CLI::App& verb, Globals& g, bool figures, const std::string& example) {
  // Appends, so that the option counts before the verb and after it; one value an option, or it would swallow what
  // follows.
  verb.add_option_function<std::vector<std::string>>(
          "--plugin-path",
          [&g](const std::vector<std::string>& folders) {
            g.plugin_path.insert(g.plugin_path.end(), folders.begin(), folders.end());
          },
          "search plugins in this folder too; may be repeated")
      ->type_name("FOLDER")
      ->allow_extra_args(false);
  if (figures) verb.add_flag("--json", g.json, "print the figures as JSON");
  if (!example.empty()) verb.footer("Example:\n  " + example);
}

void device_option(CLI::App& verb, std::string& device) {
  verb.add_option("--device", device, "cpu or cuda")->type_name("DEVICE")->check([](const std::string& d) {
    return d == "cpu" || d == "cuda" ? std::string() : "must be cpu or cuda but got '" + d + "'";
  });
}

void fits_64_bits(CLI::Option* option) {
  option->check([](const std::string& s) {
    errno = 0;
    std::strtoll(s.c_str(), nullptr, 10);
    return errno == ERANGE ? "must be within 64 bits but got '" + s + "'" : std::string();
  });
}

const StageConfig& named_stage(const Recipe& recipe, const std::string& name, const char* verb) {
  std::vector<std::string> names;
  for (const StageConfig& s : recipe.curriculum) {
    if (s.name == name) return s;
    names.push_back("'" + s.name + "'");
  }
  kb::fail("[", verb, "] --stage must be one of ", join(names, ", "), " but got '", name, "'");
}

std::string quoted(const std::string& s) {
  constexpr auto plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!s.empty() && s.find_first_not_of(plain) == std::string::npos) return s;
  std::string q = "'";
  for (const char c : s) q += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return q + "'";
}

Catalog open_catalog(const Globals& g) {
  Catalog catalog = Catalog::discover(g.plugin_path);
  for (const std::string& w : catalog.warnings()) std::cerr << "warning: " << w << "\n";
  return catalog;
}

void print_notes(const Recipe& recipe) {
  for (const std::string& note : recipe.notes) std::cerr << note << "\n";  // each begins with "note: "
}

}  // namespace kitbash
