// check_vectors: runs every file of oracle vectors in a folder through `kitbash probe`, in double and in float (on cuda in
// float and in bf16), and prints one line a tensor. Exit codes: 0 all within limits, 1 some not, 2 usage.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>

#include "base/text.h"
#include "kitbash/error.h"
#include "rules.h"

namespace check_vectors {
namespace {

namespace fs = std::filesystem;

constexpr char kUsage[] =
    "usage: check_vectors DIR [--kitbash PROGRAM] [--plugin-path FOLDER]... [--only TEXT] [--dtype f64|f32|bf16]\n"
    "       [--device cpu|cuda] [--arena MODE] [--keep]\n"
    "  --kitbash      the program; default: `kitbash` beside this one\n"
    "  --plugin-path  passed on to the program\n"
    "  --only         only files whose name contains TEXT\n"
    "  --dtype        only this one; default: f64 and f32; on cuda f32 and bf16\n"
    "  --device       passed on to the program\n"
    "  --arena        passed on to the program: planned, separate or poison\n"
    "  --keep         leave the probes' files in a temporary folder and print its name\n";

struct Options {
  std::string folder, program, only, dtype, arena, device;
  std::vector<std::string> plugin_path;
  bool keep = false;
};

// The first that fits counts: kda_layer_ before kda_.
struct Named {
  const char* prefix;
  Rule rule;
};
constexpr Named kRules[] = {{"kda_layer_", kda_layer}, {"kda_", kda},
                            {"gated_mla", gated_mla},  {"latent_moe", latent_moe},
                            {"situ_glu", situ_glu},    {"quantile_balance", quantile_balance},
                            {"model", model},          {"attn_res_mix", attn_res_mix},
                            {"adamw", adamw},          {"muon_", muon}};

double limit_of(const std::string& file, const std::string& dtype) {
  if (dtype == "f64") return 1e-9;
  if (dtype == "bf16") return 3e-2;  // operands have 8 bits
  return file.starts_with("model") ? 2e-3 : 2e-5;
}

std::vector<std::string> dtypes(const Options& o) {
  return o.device == "cuda" ? std::vector<std::string>{"f32", "bf16"} : std::vector<std::string>{"f64", "f32"};
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    auto value = [&]() -> std::string {
      if (++i == argc) kb::fail(word, " needs a value");
      return argv[i];
    };
    if (word == "--kitbash")
      o.program = value();
    else if (word == "--plugin-path")
      o.plugin_path.push_back(value());
    else if (word == "--only")
      o.only = value();
    else if (word == "--dtype")
      o.dtype = value();
    else if (word == "--device")
      o.device = value();
    else if (word == "--arena")
      o.arena = value();
    else if (word == "--keep")
      o.keep = true;
    else if (word.starts_with("-") || !o.folder.empty())
      kb::fail("unexpected '", word, "'");
    else
      o.folder = word;
  }
  if (o.folder.empty()) kb::fail("a folder of vectors is needed");
  if (!fs::is_directory(o.folder)) kb::fail("'", o.folder, "' is not a folder");
  const auto all = dtypes(o);
  if (!o.dtype.empty() && std::find(all.begin(), all.end(), o.dtype) == all.end())
    kb::fail("--dtype must be ", all[0], " or ", all[1], " on this device but got ", o.dtype);
  if (o.program.empty()) o.program = (fs::read_symlink("/proc/self/exe").parent_path() / "kitbash").string();
  if (!fs::is_regular_file(o.program))
    kb::fail("there is no program ", o.program, "; build it, or name it with --kitbash");
  return o;
}

std::vector<fs::path> files_of(const Options& o) {
  std::vector<fs::path> files;
  for (const auto& e : fs::directory_iterator(o.folder))
    if (e.path().extension() == ".safetensors" && e.path().stem().string().find(o.only) != std::string::npos)
      files.push_back(e.path());
  std::sort(files.begin(), files.end());
  if (files.empty()) kb::fail("'", o.folder, "' holds no matching *.safetensors");
  return files;
}

std::map<std::string, double> rounding_of(const VectorFile& file, Rule rule, Probe& probe, Tally& tally) {
  std::map<std::string, double> errors;
  Check measure(file, "f32", 0, false, tally);
  measure.only_measure(errors);
  probe.dtype("f32");
  probe.round_inputs(true);
  try {
    rule(file, probe, measure);
  } catch (const std::exception&) {  // told by the checked run
  }
  probe.round_inputs(false);
  return errors;
}

void check_file(const fs::path& path, const Options& o, Probe& probe, Tally& tally) {
  const std::string name = path.stem().string();
  const auto* named =
      std::find_if(std::begin(kRules), std::end(kRules), [&](const Named& r) { return name.starts_with(r.prefix); });
  if (named == std::end(kRules)) {
    ++tally.failed;
    std::printf("%-26s  FAIL: no rule for a file of this name\n", name.c_str());
    return;
  }
  const VectorFile file(path.string());
  for (const std::string& dtype : dtypes(o)) {
    if (!o.dtype.empty() && o.dtype != dtype) continue;
    // A mixture sends a token elsewhere when two scores change places, which 8 bits of a whole model's rounding do.
    if (dtype == "bf16" && name.starts_with("model")) continue;
    Check check(file, dtype, limit_of(name, dtype), dtype == "f64", tally);
    // How much it changes the result that operands have 8 bits, whatever is computed with them: some vectors (small norms,
    // sums that cancel) magnify it.
    if (dtype == "bf16") check.allow(rounding_of(file, named->rule, probe, tally), 3);
    probe.dtype(dtype);
    std::string why;
    try {
      named->rule(file, probe, check);
    } catch (const std::exception& e) {
      why = e.what();
      ++tally.failed;
      std::printf("%-26s  %s  FAIL: %s\n", name.c_str(), dtype.c_str(), why.c_str());
    }
    check.finish(why);
    std::fflush(stdout);
  }
  if (const auto unused = file.unused(); !unused.empty())
    std::printf("%-26s  note: settings that no rule reads: %s\n", name.c_str(), kitbash::join(unused, ", ").c_str());
}

int run(int argc, char** argv) {
  Options o;
  std::vector<fs::path> files;
  std::unique_ptr<Probe> probe;
  try {
    o = parse(argc, argv);
    files = files_of(o);
    probe = std::make_unique<Probe>(o.program, o.plugin_path, o.arena, o.device, o.keep);
  } catch (const std::exception& e) {
    std::cerr << "error: [check_vectors] " << e.what() << "\n" << kUsage;
    return 2;
  }
  Tally tally;
  for (const fs::path& path : files) {
    try {
      check_file(path, o, *probe, tally);
    } catch (const std::exception& e) {  // a file that cannot be read
      ++tally.failed;
      std::printf("%-26s  FAIL: %s\n", path.stem().c_str(), e.what());
    }
  }
  std::printf("%zu files, %d tensors, %d failures\n", files.size(), tally.tensors, tally.failed);
  if (o.keep) std::printf("files of the probes: %s\n", probe->folder().c_str());
  return tally.failed ? 1 : 0;
}

}  // namespace
}  // namespace check_vectors

int main(int argc, char** argv) { return check_vectors::run(argc, argv); }
