#include "data/dictd.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "base/text.h"
#include "kitbash/error.h"

namespace kitbash {
namespace {

uint64_t base64_number(const std::string& digits, int64_t line) {
  static constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  uint64_t n = 0;
  for (const char c : digits) {
    const size_t v = alphabet.find(c);
    if (v == std::string_view::npos || n >> 57)
      kb::fail("[dictd] index line ", line, ": a place must be a base-64 number but got '", digits, "'");
    n = n << 6 | v;
  }
  return n;
}

}  // namespace

std::vector<DictEntry> dictd_entries(std::string_view index, uint64_t text_size) {
  std::map<std::pair<uint64_t, uint64_t>, std::string> places;
  int64_t number = 0;
  for (size_t at = 0; at < index.size();) {
    const size_t end = std::min(index.find('\n', at), index.size());
    const auto cells = split(index.substr(at, end - at), '\t');
    ++number, at = end + 1;
    if (cells.size() == 1 && cells[0].empty()) continue;
    if (cells.size() < 3 || cells[1].empty() || cells[2].empty())
      kb::fail("[dictd] index line ", number, ": must be headword, offset and length with tabs between but has ",
               cells.size(), " cells");
    const uint64_t begin = base64_number(cells[1], number), size = base64_number(cells[2], number);
    if (size > text_size || begin > text_size - size)
      kb::fail("[dictd] index line ", number, ": '", cells[0], "' must lie in the text of ", text_size,
               " bytes but is at ", begin, " with ", size);
    if (cells[0].starts_with("00-database") || cells[0].starts_with("00database")) continue;
    const auto [place, fresh] = places.emplace(std::make_pair(begin, size), cells[0]);
    if (!fresh && cells[0] < place->second) place->second = cells[0];
  }
  std::vector<DictEntry> entries;
  for (const auto& [place, headword] : places) entries.push_back({headword, place.first, place.second});
  return entries;
}

std::string read_gzip(const std::string& path) {
  const gzFile f = gzopen(path.c_str(), "rb");
  if (!f) throw kb::Error(kb::text("[gzip] cannot open '", path, "': ", std::strerror(errno)), KB_IO);
  std::string text;
  std::string buffer(size_t(1) << 18, '\0');
  int n = 0;
  while ((n = gzread(f, buffer.data(), unsigned(buffer.size()))) > 0) text.append(buffer, 0, size_t(n));
  int code = 0;
  const std::string why = gzerror(f, &code);
  const bool whole = n == 0 && code == Z_OK;
  gzclose(f);
  if (!whole) throw kb::Error(kb::text("[gzip] '", path, "' breaks off after ", text.size(), " bytes: ", why), KB_IO);
  return text;
}

}  // namespace kitbash
