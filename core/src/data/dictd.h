// dictd.h: dictionaries of the DICT format: one text, and an index of headwords with their places in it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kitbash {

struct DictEntry {
  std::string headword;  // the first of its headwords in byte order
  uint64_t begin, size;  // in the text
};

// Entries in the order of the text; headwords that share a place are one entry. What the index calls 00-database... is about
// the dictionary and left out. Throws when a line is malformed or a place lies outside of `text_size`.
std::vector<DictEntry> dictd_entries(std::string_view index, uint64_t text_size);

std::string read_gzip(const std::string& path);  // .dz is gzip with an index of its own; throws KB_IO

}  // namespace kitbash
