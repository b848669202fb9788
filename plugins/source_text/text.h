// text.h: documents of a plain file, cut at a separator. README.md states the rules.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "kitbash/kinds/source.h"
#include "kitbash/mapped_file.h"
#include "kitbash/plugin.h"

struct TextReader {
  std::unique_ptr<kb::MappedFile> file;  // null: the split is not configured
  std::vector<uint64_t> at;              // begin and end of each document

  int64_t count() const { return int64_t(at.size() / 2); }
  void sample(uint64_t, int64_t i, kb::Sample out) const {
    if (i < 0 || i >= count()) kb::fail("a sample must be in [0, ", count(), ") but got ", i);
    out.text(file->text().substr(at[size_t(2 * i)], at[size_t(2 * i + 1)] - at[size_t(2 * i)]));
  }
};

struct TextFile : kb::Source<TextFile> {
  kb::Path path, held_out;
  kb::Text separator = "\n\n";

  std::unique_ptr<TextReader> open(std::string_view split) const {
    const bool train = split == "train";
    if (!train && split != "held_out") kb::fail("there is no split '", split, "'; there are: train, held_out");
    auto r = std::make_unique<TextReader>();
    const std::string name((train ? path : held_out).view());
    const char* key = train ? "path" : "held_out";
    if (name.empty() && train) kb::fail("'path' must name a file but is empty");
    if (name.empty()) return r;
    r->file = std::make_unique<kb::MappedFile>(name, key);
    const std::string_view text = r->file->text();
    if (text.empty()) kb::fail("'", key, "' must have text but '", name, "' is empty");
    const std::string_view cut = separator.view();
    const auto add = [&](size_t begin, size_t end) {
      if (text.substr(begin, end - begin).find_first_not_of(" \t\r\n") == std::string_view::npos) return;
      r->at.push_back(begin), r->at.push_back(end);
    };
    for (size_t begin = 0;;) {
      const size_t end = cut.empty() ? std::string_view::npos : text.find(cut, begin);
      add(begin, std::min(end, text.size()));
      if (end == std::string_view::npos) break;
      begin = end + cut.size();
    }
    if (!r->count()) kb::fail("'", key, "' must have text but '", name, "' has only blanks (", text.size(), " bytes)");
    return r;
  }
};
KITBASH_SCHEMA(TextFile, field("path", &Self::path, "file to train on").required(),
               field("held_out", &Self::held_out, "file that is never trained on; empty: none"),
               field("separator", &Self::separator, "text between documents; empty: the file is one document"))
