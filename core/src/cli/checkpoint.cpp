// checkpoint: look at what a run has saved. Nothing is changed, and no plugin is loaded.
#include <filesystem>
#include <iostream>
#include <memory>

#include "base/number.h"
#include "base/table.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "cli/json.h"
#include "cli/verb.h"
#include "kitbash/error.h"

namespace kitbash {
namespace {

using Json = nlohmann::ordered_json;

bool is_folder(const std::string& path) {
  std::error_code e;
  return std::filesystem::is_directory(path, e);
}

// A run folder keeps them in checkpoints/; both it and that folder may be named.
std::string checkpoints_in(const std::string& folder) {
  if (!is_folder(folder)) kb::fail("[", folder, "] must be a folder but is not");
  const std::string below = folder + "/checkpoints";
  auto has_steps = [](const std::string& f) {
    for (const FolderEntry& e : read_folder(f))
      if (e.step >= 0) return true;
    return false;
  };
  return !has_steps(folder) && is_folder(below) ? below : folder;
}

Json info_json(const CheckpointInfo& c) {
  const TrainPosition& p = c.position;
  return {{"path", c.path},        {"step", p.step},
          {"stage", p.stage},      {"stage_step", p.stage_step},
          {"tokens", p.tokens},    {"stage_tokens", p.stage_tokens},
          {"skipped", p.skipped},  {"loss", c.loss},
          {"bytes", c.bytes},      {"written", c.written},
          {"kitbash", c.kitbash},  {"recipe", c.recipe_name},
          {"seed", c.recipe_seed}, {"plugins", c.plugins}};
}

void list(Globals& g, const std::string& named) {
  const std::string folder = checkpoints_in(named);
  g.accepted = true;
  std::vector<std::string> notices;
  const std::vector<CheckpointInfo> all = CheckpointFolder(folder).list(&notices);
  for (const std::string& n : notices) std::cerr << "warning: " << n << "\n";
  if (!notices.empty()) g.exit_code = kExitFailed;
  if (g.json) {
    Json out = Json::array();
    for (const CheckpointInfo& c : all) out.push_back(info_json(c));
    std::cout << json_text(Json{{"checkpoints", out}, {"broken", notices}}) << "\n";
    return;
  }
  Table table({"checkpoint", "stage", "step", "tokens", "loss", "size", "written", "recipe"}, "lrrrrrll");
  for (const CheckpointInfo& c : all) {
    char loss[32];
    std::snprintf(loss, sizeof loss, "%.4f", c.loss);
    table.row({std::filesystem::path(c.path).filename().string(), std::to_string(c.position.stage),
               std::to_string(c.position.stage_step), human_count(double(c.position.tokens)), loss,
               human_bytes(double(c.bytes)), c.written, c.recipe_name});
  }
  if (all.empty())
    std::cout << "no checkpoint in " << folder << "\n";
  else
    std::cout << table.text();
}

void verify_one(Globals& g, const std::string& path) {
  try {
    verify_checkpoint(path);
    std::cout << "ok      " << path << "\n";
  } catch (const kb::Error& e) {
    std::cout << "broken  " << path << "\n";
    std::cerr << "error: " << e.what() << "\n";
    g.exit_code = kExitFailed;
  }
}

void verify(Globals& g, const std::string& path) {
  if (!is_folder(path)) kb::fail("[", path, "] must be a checkpoint or a folder of them but is no folder");
  std::vector<std::string> paths;
  const std::string folder = checkpoints_in(path);
  for (const FolderEntry& e : read_folder(folder))
    if (e.step >= 0) paths.push_back(folder + "/" + e.name);
  g.accepted = true;
  if (paths.empty()) paths.push_back(path);  // one checkpoint, under whatever name
  for (const std::string& p : paths) verify_one(g, p);
}

void diff(Globals& g, const std::string& a, const std::string& b) {
  for (const std::string& p : {a, b})
    if (!is_folder(p)) kb::fail("[", p, "] must be a checkpoint but is no folder");
  g.accepted = true;
  const std::vector<std::string> lines = diff_checkpoints(a, b);
  for (const std::string& l : lines) std::cout << l << "\n";
  if (lines.empty())
    std::cout << "equal\n";
  else
    g.exit_code = 1;
}

}  // namespace

void add_checkpoint(CLI::App& app, Globals& g) {
  CLI::App* group = app.add_subcommand("checkpoint", "list, verify and compare checkpoints");
  group->require_subcommand(1);
  group->footer("Example:\n  kitbash checkpoint list runs/quickstart");

  CLI::App* verb = group->add_subcommand("list", "the checkpoints of a run, by step");
  auto folder = std::make_shared<std::string>();
  verb->add_option("folder", *folder, "a run folder")->required()->type_name("FOLDER");
  common_options(*verb, g, true, "kitbash checkpoint list runs/quickstart");
  verb->callback([&g, folder] { list(g, *folder); });

  verb = group->add_subcommand("verify", "read every byte and compare it with its checksum");
  auto path = std::make_shared<std::string>();
  verb->add_option("path", *path, "a checkpoint, or a run folder for all of its checkpoints")
      ->required()
      ->type_name("PATH");
  common_options(*verb, g, false,
                 "kitbash checkpoint verify runs/quickstart\n\nExit codes: 0 all are whole, 2 usage, 3 one is broken");
  verb->callback([&g, path] { verify(g, *path); });

  verb = group->add_subcommand("diff", "what differs between two checkpoints: tensors, positions, recipe");
  auto a = std::make_shared<std::string>(), b = std::make_shared<std::string>();
  verb->add_option("a", *a, "a checkpoint")->required()->type_name("A");
  verb->add_option("b", *b, "another")->required()->type_name("B");
  common_options(*verb, g, false,
                 "kitbash checkpoint diff one/step-00001000 two/step-00001000\n\n"
                 "Exit codes: 0 equal, 1 they differ, 2 usage, 3 one is broken");
  verb->callback([&g, a, b] { diff(g, *a, *b); });
}

}  // namespace kitbash
