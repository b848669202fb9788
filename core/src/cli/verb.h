// verb.h: what the verbs of the command line share. A verb is one file with one add_<verb>(), which declares its
// options and sets the callback that does the work. Nothing is opened or loaded before the callback runs: --help stays
// quick.
//
// Exit codes: 0 ok, 1 compared and different, 2 usage or recipe error, 3 run failed, 75 stopped and resumable. A verb
// reports a failure by throwing kb::Error or RecipeErrors; main prints it to stderr and exits with 2, or with 3 once the
// verb has set Globals::accepted.
#pragma once
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <string>
#include <vector>

#include "plugin/catalog.h"
#include "recipe/recipe.h"

namespace kitbash {

constexpr int kExitUsage = 2, kExitFailed = 3;

struct Globals {
  std::string program = "kitbash";       // as it was called: what is printed to be typed starts with it
  std::vector<std::string> plugin_path;  // --plugin-path, in order
  bool json = false;                     // --json: figures for machines on stdout
  bool accepted = false;  // set by a verb when its input has passed every check: later errors exit with 3
  int exit_code = 0;      // set by a verb that ran but whose answer is no
};

// Declares --plugin-path, and with `figures` --json, on a verb; `example` is the last paragraph of its --help.
void common_options(CLI::App& verb, Globals& g, bool figures, const std::string& example);

// --device cpu|cuda.
void device_option(CLI::App& verb, std::string& device);

// For an option of 64 bits: refuses a number that does not fit, which CLI11 would take for the largest that does.
void fits_64_bits(CLI::Option* option);

// The stage of that name; throws with the names that there are.
const StageConfig& named_stage(const Recipe& recipe, const std::string& name, const char* verb);

// For a shell: quoted when it is no plain word.
std::string quoted(const std::string& word);

// Discovers the plugins, and prints a warning for each file that looks like one but is broken.
Catalog open_catalog(const Globals& g);

// Prints the notes of a recipe to stderr, one a line.
void print_notes(const Recipe& recipe);

void add_bench(CLI::App& app, Globals& g);
void add_eval(CLI::App& app, Globals& g);
void add_generate(CLI::App& app, Globals& g);
void add_check(CLI::App& app, Globals& g);
void add_checkpoint(CLI::App& app, Globals& g);
void add_components(CLI::App& app, Globals& g);
void add_data(CLI::App& app, Globals& g);
void add_explain(CLI::App& app, Globals& g);
void add_plan(CLI::App& app, Globals& g);
void add_probe(CLI::App& app, Globals& g);
void add_plugin_inspect(CLI::App& group, Globals& g);
void add_train(CLI::App& app, Globals& g);
void add_plugin_path(CLI::App& group, Globals& g);

}  // namespace kitbash
