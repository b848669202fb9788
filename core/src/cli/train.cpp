// train: a recipe from its first token to its last.
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/verb.h"
#include "kitbash/error.h"
#include "ops/ops.h"
#include "probe/probe_model.h"
#include "train/trainer.h"

namespace kitbash {
namespace {

constexpr int kExitPreempted = 75;

struct Arguments {
  std::string recipe, arena = "planned", device = "cpu";
  bool no_capture = false, no_fuse = false;
  std::vector<std::string> set;
  TrainOptions options;
};

std::string resume_command(const Globals& g, const Arguments& a, const std::string& folder) {
  std::string c = quoted(g.program) + " train " + quoted(a.recipe) + " --run " + quoted(folder) + " --resume";
  for (const std::string& s : a.set) c += " --set " + quoted(s);
  if (a.options.threads) c += " --threads " + std::to_string(a.options.threads);
  if (a.arena != "planned") c += " --arena " + a.arena;
  if (a.device != "cpu") c += " --device " + a.device;
  if (a.no_capture) c += " --no-capture";
  if (a.no_fuse) c += " --no-fuse";
  for (const std::string& p : g.plugin_path) c += " --plugin-path " + quoted(p);
  if (g.json) c += " --json";
  return c;
}

void run(Globals& g, Arguments& a) {
  if (a.options.stop_after < 0) kb::fail("[train] --stop-after must be 0 or more but got ", a.options.stop_after);
  Registry registry(open_catalog(g));
  register_base_ops(registry);
  const Recipe recipe = load_recipe(a.recipe, a.set, registry.catalog());
  print_notes(recipe);
  TrainOptions o = a.options;
  o.json = g.json;
  o.arena = probe_arena(a.arena);
  o.device = {device_kind(a.device), !a.no_capture, !a.no_fuse};
  if (o.run.empty()) o.run = "runs/" + recipe.name;
  o.command = resume_command(g, a, o.run);
  catch_signals();
  Trainer trainer(recipe, registry, o);
  g.accepted = true;
  const TrainEnd end = trainer.run();
  if (!g.json && !trainer.results().empty()) std::cout << "\n" << results_table(trainer.results());
  if (!g.json && end == TrainEnd::done) std::cout << "checkpoint: " << trainer.last_checkpoint() << "\n";
  g.exit_code = end == TrainEnd::done ? 0 : end == TrainEnd::preempted ? kExitPreempted : kExitFailed;
}

}  // namespace

void add_train(CLI::App& app, Globals& g) {
  CLI::App* verb = app.add_subcommand("train", "train a recipe; --resume continues it");
  auto a = std::make_shared<Arguments>();
  verb->add_option("recipe", a->recipe, "the recipe, a TOML file")->required()->type_name("FILE");
  verb->add_option("--set", a->set, "replace a key; repeatable")->type_name("KEY=VALUE")->take_all();
  verb->add_option("--run", a->options.run, "folder of the run; default runs/NAME")->type_name("FOLDER");
  verb->add_flag("--resume", a->options.resume, "continue from the newest good checkpoint of the run");
  fits_64_bits(verb->add_option("--stop-after", a->options.stop_after,
                                "save and stop when the run has done this many steps, exit code 75")
                   ->type_name("STEPS"));
  verb->add_option("--threads", a->options.threads, "of the cpu; 0: all cores")->type_name("N");
  verb->add_option("--arena", a->arena, "planned, separate or poison")->type_name("MODE");
  device_option(*verb, a->device);
  verb->add_flag("--no-capture", a->no_capture, "cuda: launch every node by itself instead of one graph a program");
  verb->add_flag("--no-fuse", a->no_fuse, "cuda: run every pointwise node by itself");
  common_options(*verb, g, true,
                 "kitbash train recipes/quickstart.toml\n\nExit codes: 0 ok, 2 usage or recipe error, 3 run failed, 75 "
                 "stopped: run again with --resume");
  verb->callback([&g, a] { run(g, *a); });
}

}  // namespace kitbash
