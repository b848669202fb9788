// dataset.h: datasets/<name>/manifest.toml, which says where a text comes from, under which licence, and how it is split.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace kitbash {

struct Dataset {
  std::string folder, path;  // of the manifest
  std::string name, title, license;
  std::string package, version;           // Debian package that it comes from
  std::string text_file, index_file;      // in the package; a dictd dictionary
  std::string text_sha256, index_sha256;  // of the text unpacked, of the index
  bool windows_1252 = false;              // bytes that are not UTF-8 are Windows-1252; else they are an error
  std::vector<std::string> drop_lines;    // lines that are left out of every entry (marks of the editors)
  int64_t held_out_percent = 0;           // of the entries, by hash of the headword
  std::string manifest_sha256;
};
Dataset read_dataset(const std::string& folder);  // throws RecipeErrors with position, or kb::Error

struct PreparedSplit {
  int64_t entries = 0, bytes = 0, longest = 0;
};
struct Prepared {
  std::string folder;      // prepared/, with train.jsonl, held_out.jsonl, held_out.txt
  bool fresh = true;       // false: it was there already, and whole
  int64_t entries = 0;     // in the dictionary
  int64_t duplicates = 0;  // left out: the same text, but for case and blanks, occurs before
  int64_t moved = 0;       // to train: the headword is held out, but a text under another one in train is the same
  PreparedSplit train, held_out;
};
void check_from(const std::string& from);  // throws unless prepare_dataset could take it
// `from`: a .deb of the package, or its .dict.dz with the .index beside it; empty: what is installed, else apt-get download. The
// folder prepared/ is replaced as a whole.
Prepared prepare_dataset(const Dataset& d, const std::string& from);

// The split, on its own: entries to train and held-out texts.
struct SplitTexts {
  std::vector<std::pair<std::string, std::string>> train, held_out;  // headword, text
  int64_t duplicates = 0, moved = 0;
};
SplitTexts split_entries(const std::vector<std::pair<std::string, std::string>>& entries, int64_t held_out_percent);

}  // namespace kitbash
