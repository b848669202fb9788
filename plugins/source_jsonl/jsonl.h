// jsonl.h: one sample a line, the text under one key. README.md states the rules.
#pragma once
#include <memory>
#include <vector>

#include "json_line.h"
#include "kitbash/kinds/source.h"
#include "kitbash/mapped_file.h"
#include "kitbash/plugin.h"

struct JsonlReader {
  std::unique_ptr<kb::MappedFile> file;  // null: the split is not configured
  std::string key;
  std::vector<uint64_t> at;  // begin and end of each line

  int64_t count() const { return int64_t(at.size() / 2); }
  void sample(uint64_t, int64_t i, kb::Sample out) const {
    if (i < 0 || i >= count()) kb::fail("a sample must be in [0, ", count(), ") but got ", i);
    std::string text;
    JsonLine(line(at[size_t(2 * i)], at[size_t(2 * i + 1)])).read(key, &text);
    out.text(text);
  }
  std::string_view line(uint64_t begin, uint64_t end) const { return file->text().substr(begin, end - begin); }
};

struct Jsonl : kb::Source<Jsonl> {
  kb::Path path, held_out;
  kb::Text key = "text";

  std::unique_ptr<JsonlReader> open(std::string_view split) const {
    const bool train = split == "train";
    if (!train && split != "held_out") kb::fail("there is no split '", split, "'; there are: train, held_out");
    auto r = std::make_unique<JsonlReader>();
    r->key = key.view();
    const std::string name((train ? path : held_out).view());
    const char* which = train ? "path" : "held_out";
    if (name.empty() && train) kb::fail("'path' must name a file but is empty");
    if (name.empty()) return r;
    r->file = std::make_unique<kb::MappedFile>(name, which);
    const std::string_view text = r->file->text();
    if (text.empty()) kb::fail("'", which, "' must have text but '", name, "' is empty");
    int64_t number = 1;
    for (size_t begin = 0; begin < text.size(); ++number) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      if (r->line(begin, end).find_first_not_of(" \t\r") != std::string_view::npos) {
        try {
          JsonLine(r->line(begin, end)).read(r->key, nullptr);
        } catch (const kb::Error& e) {
          kb::fail(name, ":", number, ": ", e.what());
        }
        r->at.push_back(begin), r->at.push_back(end);
      }
      begin = end + 1;
    }
    if (!r->count()) kb::fail("'", which, "' must have text but '", name, "' has only blank lines");
    return r;
  }
};
KITBASH_SCHEMA(Jsonl, field("path", &Self::path, "file to train on").required(),
               field("held_out", &Self::held_out, "file that is never trained on; empty: none"),
               field("key", &Self::key, "key of the text in each object"))
