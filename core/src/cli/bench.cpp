// bench: tokens a second of a recipe here, against the ideal of its matrix products, and where the time goes.
#include <iostream>
#include <memory>

#include "cli/json.h"
#include "cli/verb.h"
#include "kitbash/error.h"
#include "ops/ops.h"
#include "train/bench.h"

namespace kitbash {
namespace {

void run(Globals& g, const std::string& path, const std::vector<std::string>& set, const std::string& stage, int steps,
         int threads, const RunDevice& device) {
  now_seconds();
  Registry registry(open_catalog(g));
  register_base_ops(registry);
  const Recipe recipe = load_recipe(path, set, registry.catalog());
  print_notes(recipe);
  if (steps < 1) kb::fail("[bench] --steps must be at least 1 but got ", steps);
  const StageConfig* only = stage.empty() ? nullptr : &named_stage(recipe, stage, "bench");
  Session session(recipe, registry, threads, ArenaMode::planned, device);
  g.accepted = true;
  nlohmann::json all = nlohmann::json::array();
  for (const StageConfig& s : recipe.curriculum) {
    if (only && only != &s) continue;
    const BenchResult r = bench_stage(session, recipe, s, steps);
    if (!g.json) std::cout << bench_text(r) << std::flush;
    nlohmann::json j = {{"stage", r.stage},
                        {"context", r.context},
                        {"tokens_per_second", r.tokens_per_second},
                        {"ideal_tokens_per_second", r.ideal_tokens_per_second},
                        {"machine_gflops", r.machine_gflops},
                        {"product_flops_per_token", r.product_flops},
                        {"product_share", r.product_share},
                        {"store_bytes", r.store_bytes},
                        {"arena_bytes", r.arena_bytes},
                        {"peak_bytes", r.peak_bytes},
                        {"begin_seconds", r.begin_seconds},
                        {"start_seconds", r.start_seconds}};
    for (const NodeTime& n : r.slowest)
      j["slowest"].push_back({{"where", n.where},
                              {"op", n.op},
                              {"kernel", n.kernel},
                              {"nodes", n.nodes},
                              {"seconds", n.seconds},
                              {"share", n.share}});
    for (const NodeTime& n : r.ops)
      j["ops"].push_back(
          {{"op", n.op}, {"kernel", n.kernel}, {"nodes", n.nodes}, {"seconds", n.seconds}, {"share", n.share}});
    all.push_back(j);
  }
  if (g.json) std::cout << json_text(nlohmann::json{{"stages", all}}) << "\n";
}

}  // namespace

void add_bench(CLI::App& app, Globals& g) {
  CLI::App* verb = app.add_subcommand("bench", "tokens a second of a recipe, its ideal, and the slowest nodes");
  auto path = std::make_shared<std::string>(), stage = std::make_shared<std::string>();
  auto set = std::make_shared<std::vector<std::string>>();
  auto steps = std::make_shared<int>(10), threads = std::make_shared<int>(0);
  verb->add_option("recipe", *path, "the recipe, a TOML file")->required()->type_name("FILE");
  verb->add_option("--set", *set, "replace a key; repeatable")->type_name("KEY=VALUE")->take_all();
  verb->add_option("--stage", *stage, "only this stage")->type_name("NAME");
  verb->add_option("--steps", *steps, "timed steps")->type_name("N");
  verb->add_option("--threads", *threads, "of the cpu; 0: all cores")->type_name("N");
  auto device = std::make_shared<std::string>("cpu");
  auto no_capture = std::make_shared<bool>(false), no_fuse = std::make_shared<bool>(false);
  device_option(*verb, *device);
  verb->add_flag("--no-capture", *no_capture, "cuda: launch every node by itself instead of one graph a program");
  verb->add_flag("--no-fuse", *no_fuse, "cuda: run every pointwise node by itself");
  common_options(*verb, g, true, "kitbash bench recipes/quickstart.toml --stage 512");
  verb->callback([=, &g] {
    run(g, *path, *set, *stage, *steps, *threads, {device_kind(*device), !*no_capture, !*no_fuse});
  });
}

}  // namespace kitbash
