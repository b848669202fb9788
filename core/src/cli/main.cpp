// kitbash: the command line. main only declares the verbs and turns what they throw into sentences and exit codes.
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "base/text.h"
#include "cli/verb.h"
#include "kitbash/error.h"
#include "recipe/suggest.h"

namespace kitbash {
namespace {

std::vector<std::string> verb_names(const CLI::App& group) {
  std::vector<std::string> names;
  for (const CLI::App* verb : group.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(verb->get_name());
  return names;
}

// A word where a verb is due that names none; CLI11 alone would only say that a subcommand is missing.
void check_verb(const CLI::App& app, int argc, char** argv) {
  const CLI::App* group = &app;
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--plugin-path") ++i;  // its value is no verb
    json = json || word == "--json";
    if (word.starts_with("-")) continue;
    const std::vector<std::string> names = verb_names(*group);
    if (names.empty()) return;
    const auto named = group->get_subcommands([&](const CLI::App* verb) { return verb->check_name(word); });
    if (!named.empty()) {
      group = named.front();
      // Before the verb it is an option of the program, which the verb would not hear of.
      if (json && verb_names(*group).empty() && !group->get_option_no_throw("--json"))
        kb::fail("[kitbash ", word, "] has no --json: it prints no figures; leave it out");
      continue;
    }
    const std::string where = group == &app ? "kitbash" : "kitbash " + group->get_name();
    kb::fail("[", where, "] the verb must be one of ", join(names, ", "), " but got '", word, "'",
             did_you_mean(word, names), "; see ", where, " --help");
  }
}

int run(int argc, char** argv) {
  Globals g;
  if (argc > 0) g.program = argv[0];
  CLI::App app("kitbash: a model zoo as a kit of parts", "kitbash");
  app.require_subcommand(1);
  app.set_version_flag("--version", "kitbash " KITBASH_VERSION);
  common_options(app, g, true,
                 "kitbash check recipes/quickstart.toml\n\nExit codes: 0 ok, 1 `checkpoint diff` found a difference, 2 "
                 "usage or recipe error, 3 run failed, 75 stopped: run again with --resume");
  add_train(app, g);
  add_generate(app, g);
  add_eval(app, g);
  add_check(app, g);
  add_plan(app, g);
  add_explain(app, g);
  add_components(app, g);
  add_bench(app, g);
  add_probe(app, g);
  add_data(app, g);
  add_checkpoint(app, g);
  CLI::App* plugin = app.add_subcommand("plugin", "look at plugins");
  plugin->require_subcommand(1);
  plugin->footer("Example:\n  kitbash plugin path");
  add_plugin_inspect(*plugin, g);
  add_plugin_path(*plugin, g);

  try {
    check_verb(app, argc, argv);
    app.parse(argc, argv);
    std::cout.flush();
    if (!std::cout) kb::fail("[kitbash] the output cannot be written");
    return g.exit_code;
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    std::cerr << "error: [kitbash] " << e.what() << "; see --help\n";
    return kExitUsage;
  } catch (const RecipeErrors& e) {
    const std::string text = e.text();
    std::cerr << text << (text.ends_with('\n') ? "" : "\n");
    return kExitUsage;
  } catch (const kb::Error& e) {
    std::cerr << "error: " << e.what() << "\n";
    return g.accepted ? kExitFailed : kExitUsage;
  } catch (const std::filesystem::filesystem_error& e) {
    std::cerr << "error: [" << e.path1().string()
              << "] must be a path that can be used but is not: " << e.code().message() << "\n";
    return g.accepted ? kExitFailed : kExitUsage;
  } catch (const std::exception& e) {
    std::cerr << "error: [kitbash] " << e.what() << " (unexpected; please report it with the command line)\n";
    return kExitFailed;
  }
}

}  // namespace
}  // namespace kitbash

int main(int argc, char** argv) {
  // The thread team waits for its next piece by spinning; by default for milliseconds, which starves whatever else runs here.
  setenv("GOMP_SPINCOUNT", "20000", 0);
  return kitbash::run(argc, argv);
}
