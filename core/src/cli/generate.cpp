// generate: text from a checkpoint. eval: bits per byte of a checkpoint on the held-out split.
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>

#include "base/number.h"
#include "checkpoint/checkpoint.h"
#include "cli/json.h"
#include "cli/verb.h"
#include "kitbash/error.h"
#include "ops/ops.h"
#include "train/generate.h"
#include "train/session.h"

namespace kitbash {
namespace {

namespace fs = std::filesystem;

// A run folder stands for its newest good checkpoint.
std::string find_checkpoint(const Globals& g, const std::string& path, const char* verb) {
  std::error_code e;
  if (fs::is_regular_file(path, e)) {
    if (!path.ends_with(".toml"))
      kb::fail("[", verb, "] needs the folder of a run or a checkpoint but got the file '", path, "'");
    kb::fail("[", verb,
             "] needs the folder of a run or a checkpoint but got a recipe; train it first with: ", g.program,
             " train ", quoted(path));
  }
  if (fs::exists(path + "/manifest.pb", e)) return path;
  std::vector<std::string> notices;
  const std::string newest = CheckpointFolder(path + "/checkpoints").newest(notices);
  for (const std::string& n : notices) std::cerr << "notice: " << n << "\n";
  if (newest.empty())
    kb::fail("[checkpoint] ", path, " must be a checkpoint or the folder of a run with one but has none");
  return newest;
}

// The recipe travels with the checkpoint, resolved; `set` may still change what has no weights.
Recipe checkpoint_recipe(const std::string& checkpoint, const std::vector<std::string>& set, const Catalog& catalog) {
  return load_recipe(RecipeText{read_manifest(checkpoint).recipe, checkpoint + "/recipe"}, set, catalog);
}

struct GenerateArguments {
  std::string from, prompt;
  int64_t tokens = 200;
  int64_t seed = 0;
  int threads = 0;
  std::string device = "cpu";
  SamplingOptions sampling;
};

void run_generate(Globals& g, const GenerateArguments& a) {
  // Every token of the prompt is a byte at most, and one starts the text; positions are i32.
  const int64_t before = int64_t(a.prompt.size()) + 2, most = INT32_MAX - before;
  if (a.tokens < 1 || a.tokens > most) kb::fail("[generate] --tokens must be in [1, ", most, "] but got ", a.tokens);
  if (!(a.sampling.top_p > 0 && a.sampling.top_p <= 1))
    kb::fail("[generate] --top-p must be in (0, 1] but got ", a.sampling.top_p);
  if (!(a.sampling.temperature >= 0 && std::isfinite(a.sampling.temperature)))
    kb::fail("[generate] --temperature must be 0 or more, and finite, but got ", a.sampling.temperature);
  if (a.seed < 0) kb::fail("[generate] --seed must be 0 or more but got ", a.seed);
  SamplingOptions sampling = a.sampling;
  sampling.seed = uint64_t(a.seed);
  const std::string checkpoint = find_checkpoint(g, a.from, "generate");
  Registry registry(open_catalog(g));
  register_base_ops(registry);
  const Recipe recipe = checkpoint_recipe(checkpoint, {}, registry.catalog());
  Generator generator(recipe, registry, before + a.tokens, 128, a.threads, device_kind(a.device));
  generator.load(checkpoint);
  g.accepted = true;
  if (!g.json) std::cout << a.prompt << std::flush;
  std::string text;
  const double start = now_seconds();
  const int64_t made = generate_text(generator, a.prompt, a.tokens, sampling, [&](const std::string& piece) {
    text += piece;
    if (!g.json) std::cout << piece << std::flush;
  });
  const double rate = double(made) / std::max(1e-9, now_seconds() - start);
  if (g.json)
    std::cout << json_text(nlohmann::json{{"prompt", a.prompt},
                                          {"text", text},
                                          {"tokens", made},
                                          {"tokens_per_second", rate},
                                          {"checkpoint", checkpoint}})
              << "\n";
  else
    std::cout << "\n";
}

void run_eval(Globals& g, const std::string& from, const std::vector<std::string>& set, const std::string& stage,
              int64_t limit, int threads, const std::string& device) {
  if (limit < 0) kb::fail("[eval] --tokens must be 0 (all) or more but got ", limit);
  const std::string checkpoint = find_checkpoint(g, from, "eval");
  Registry registry(open_catalog(g));
  register_base_ops(registry);
  const Recipe recipe = checkpoint_recipe(checkpoint, set, registry.catalog());
  print_notes(recipe);
  const StageConfig& at = stage.empty() ? recipe.curriculum.back() : named_stage(recipe, stage, "eval");
  Session session(recipe, registry, threads, ArenaMode::planned, {device_kind(device)});
  session.enter_stage(at);
  load_checkpoint(checkpoint, session.memory());
  g.accepted = true;
  if (!g.json)
    std::cerr << "evaluating " << checkpoint << " with stage " << at.name << ", context " << at.context << "\n";
  const Evaluation e = *evaluate(session, recipe, at, limit);
  if (g.json) {
    std::cout << json_text(nlohmann::json{{"checkpoint", checkpoint},
                                          {"stage", at.name},
                                          {"loss", e.loss},
                                          {"bits_per_byte", e.bits_per_byte},
                                          {"tokens", e.tokens},
                                          {"bytes", e.bytes}})
              << "\n";
    return;
  }
  std::printf("%s\nheld-out text at context %lld: %.4f bits per byte, loss %.4f over %s tokens\n", checkpoint.c_str(),
              (long long)at.context, e.bits_per_byte, e.loss, human_count(double(e.tokens)).c_str());
}

}  // namespace

void add_generate(CLI::App& app, Globals& g) {
  CLI::App* verb = app.add_subcommand("generate", "text from a checkpoint");
  auto a = std::make_shared<GenerateArguments>();
  verb->add_option("from", a->from, "a checkpoint, or the folder of a run")->required()->type_name("FOLDER");
  verb->add_option("--prompt", a->prompt, "what the text starts with")->type_name("TEXT");
  fits_64_bits(verb->add_option("--tokens", a->tokens, "at most this many")->type_name("N"));
  verb->add_option("--temperature", a->sampling.temperature, "0: the likeliest token")->type_name("T");
  verb->add_option("--top-p", a->sampling.top_p, "sample from the smallest set with this probability")->type_name("P");
  fits_64_bits(verb->add_option("--seed", a->seed, "same seed, same text")->type_name("N"));
  verb->add_option("--threads", a->threads, "of the cpu; 0: all cores")->type_name("N");
  device_option(*verb, a->device);
  common_options(*verb, g, true, "kitbash generate runs/quickstart --prompt 'compiler' --tokens 300 --temperature 0.7");
  verb->callback([&g, a] { run_generate(g, *a); });
}

void add_eval(CLI::App& app, Globals& g) {
  CLI::App* verb = app.add_subcommand("eval", "bits per byte of a checkpoint on the held-out text");
  auto from = std::make_shared<std::string>(), stage = std::make_shared<std::string>();
  auto set = std::make_shared<std::vector<std::string>>();
  auto limit = std::make_shared<int64_t>(0);
  auto threads = std::make_shared<int>(0);
  verb->add_option("from", *from, "a checkpoint, or the folder of a run")->required()->type_name("FOLDER");
  verb->add_option("--set", *set, "replace a key that has no weights; repeatable")->type_name("KEY=VALUE")->take_all();
  verb->add_option("--stage", *stage, "with the context of this stage; default: the last")->type_name("NAME");
  fits_64_bits(
      verb->add_option("--tokens", *limit, "stop after this many, in whole micro-batches; 0: all")->type_name("N"));
  verb->add_option("--threads", *threads, "of the cpu; 0: all cores")->type_name("N");
  auto device = std::make_shared<std::string>("cpu");
  device_option(*verb, *device);
  common_options(*verb, g, true, "kitbash eval runs/quickstart");
  verb->callback([=, &g] { run_eval(g, *from, *set, *stage, *limit, *threads, *device); });
}

}  // namespace kitbash
