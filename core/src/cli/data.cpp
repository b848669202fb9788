// data: prepare a dataset, and count what the sources of a recipe hold.
#include <algorithm>
#include <iostream>
#include <memory>

#include "base/table.h"
#include "cli/json.h"
#include "cli/verb.h"
#include "data/dataset.h"
#include "data/reader.h"
#include "data/stream.h"
#include "kitbash/error.h"

namespace kitbash {
namespace {

std::string count_text(int64_t n) { return std::to_string(n); }

void prepare(Globals& g, const std::string& folder, const std::string& from) {
  const Dataset d = read_dataset(folder);
  check_from(from);
  g.accepted = true;
  const Prepared p = prepare_dataset(d, from);
  if (g.json) {
    const auto part = [](const PreparedSplit& s) {
      return nlohmann::ordered_json{{"entries", s.entries}, {"bytes", s.bytes}, {"longest", s.longest}};
    };
    std::cout << json_text(nlohmann::ordered_json{{"name", d.name},
                                                  {"folder", p.folder},
                                                  {"fresh", p.fresh},
                                                  {"entries", p.entries},
                                                  {"duplicates", p.duplicates},
                                                  {"moved", p.moved},
                                                  {"train", part(p.train)},
                                                  {"held_out", part(p.held_out)}})
              << "\n";
    return;
  }
  std::cout << d.title << " (" << d.package << " " << d.version << ", " << d.license << ")\n";
  Table t({"split", "entries", "bytes", "mean", "longest", "file"}, "lrrrrl");
  const auto row = [&](const char* name, const PreparedSplit& s) {
    t.row({name, count_text(s.entries), count_text(s.bytes), count_text(s.bytes / std::max<int64_t>(1, s.entries)),
           count_text(s.longest), p.folder + "/" + name + ".jsonl"});
  };
  row("train", p.train), row("held_out", p.held_out);
  std::cout << t.text("  ") << "  of " << p.entries << " entries, " << p.duplicates
            << " that repeat another are left out; " << p.moved << " held-out ones with a text of train went to train\n"
            << (p.fresh ? "" : "  it was there already, and is whole: nothing was written\n");
}

struct SplitCount {
  std::string source, split;
  int64_t samples = 0, bytes = 0, tokens = 0, median = 0, longest = 0,
          at = 0;  // lengths in tokens, without bos and eos
};

SplitCount count(const std::string& name, const std::string& split, const SourceReader& reader,
                 const Tokenizer& tokenizer) {
  SplitCount s{name, split};
  s.samples = reader.count();
  std::vector<int64_t> lengths;
  std::vector<int32_t> ids;
  SampleText text;
  for (int64_t i = 0; i < s.samples; ++i) {
    reader.sample(0, i, text);
    ids.clear();
    size_t begin = 0;
    for (const auto& segment : text.segments) {
      tokenizer.encode_onto(std::string_view(text.text).substr(begin, segment.end - begin), ids);
      begin = segment.end;
    }
    const auto n = int64_t(ids.size());
    s.bytes += int64_t(text.text.size()), s.tokens += n;
    if (n > s.longest) s.longest = n, s.at = i;
    lengths.push_back(n);
  }
  if (!lengths.empty()) {
    const auto middle = lengths.begin() + std::ptrdiff_t(lengths.size() / 2);
    std::nth_element(lengths.begin(), middle, lengths.end());
    s.median = *middle;
  }
  return s;
}

void stats(Globals& g, const std::string& path, const std::vector<std::string>& set) {
  Registry registry(open_catalog(g));
  const Recipe recipe = load_recipe(path, set, registry.catalog());
  print_notes(recipe);
  if (!recipe.data.tokenizer) kb::fail("[data stats] the recipe must have [data] but ", path, " has none");
  const Tokenizer tokenizer(*recipe.data.tokenizer, registry);
  struct Opened {
    std::string source, split;
    std::unique_ptr<SourceReader> reader;
  };
  std::vector<Opened> opened;  // all of them before any is counted: a missing file is a mistake of the recipe
  for (const auto& [name, c] : recipe.data.sources)
    for (const char* split : {"train", "held_out"})
      opened.push_back({name, split, std::make_unique<SourceReader>(name, *c, registry, split)});
  g.accepted = true;
  std::vector<SplitCount> all;
  for (const Opened& o : opened) all.push_back(count(o.source, o.split, *o.reader, tokenizer));
  const auto mean = [](const SplitCount& s) { return s.samples ? double(s.tokens) / double(s.samples) : 0.0; };
  if (g.json) {
    auto list = nlohmann::ordered_json::array();
    for (const auto& s : all)
      list.push_back({{"source", s.source},
                      {"split", s.split},
                      {"samples", s.samples},
                      {"bytes", s.bytes},
                      {"tokens", s.tokens},
                      {"mean", mean(s)},
                      {"median", s.median},
                      {"longest", s.longest},
                      {"longest_sample", s.at}});
    std::cout << json_text(nlohmann::ordered_json{{"vocab", tokenizer.vocab()}, {"splits", list}}) << "\n";
    return;
  }
  Table t({"source", "split", "samples", "bytes", "tokens", "mean", "median", "longest", "which"}, "llrrrrrrr");
  for (const auto& s : all)
    t.row({s.source, s.split, count_text(s.samples), count_text(s.bytes), count_text(s.tokens),
           count_text(int64_t(mean(s) + 0.5)), count_text(s.median), count_text(s.longest),
           s.samples ? count_text(s.at) : ""});
  std::cout << t.text();
}

}  // namespace

void add_data(CLI::App& app, Globals& g) {
  CLI::App* group = app.add_subcommand("data", "prepare datasets, look at sources");
  group->require_subcommand(1);
  group->footer("Example:\n  kitbash data prepare datasets/foldoc");

  CLI::App* verb = group->add_subcommand("prepare", "fetch, verify, split and write a dataset");
  auto folder = std::make_shared<std::string>(), from = std::make_shared<std::string>();
  verb->add_option("dataset", *folder, "folder with a manifest.toml")->required()->type_name("FOLDER");
  verb->add_option("--from", *from,
                   "a .deb, or a .dict.dz with its .index beside it; default: what is installed, else apt-get")
      ->type_name("FILE");
  common_options(*verb, g, true, "kitbash data prepare datasets/foldoc");
  verb->callback([&g, folder, from] { prepare(g, *folder, *from); });

  verb = group->add_subcommand("stats", "samples, bytes and tokens of every source and split");
  auto path = std::make_shared<std::string>();
  auto set = std::make_shared<std::vector<std::string>>();
  verb->add_option("recipe", *path, "the recipe, a TOML file")->required()->type_name("FILE");
  verb->add_option("--set", *set, "replace a key: data.join=false; repeatable")->type_name("KEY=VALUE")->take_all();
  common_options(*verb, g, true, "kitbash data stats recipes/quickstart.toml");
  verb->callback([&g, path, set] { stats(g, *path, *set); });
}

}  // namespace kitbash
