// The steps of `data prepare`: find the package, unpack, verify, split, write.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <unordered_set>

#include "base/sha256.h"
#include "base/text.h"
#include "data/dataset.h"
#include "data/dictd.h"
#include "kitbash/error.h"

namespace kitbash {
namespace fs = std::filesystem;
namespace {

constexpr int kRules = 1;  // raise when the same dictionary would be split or cleaned another way

struct TempFolder {
  fs::path path;
  TempFolder() {
    std::error_code e;
    const fs::path folder = fs::temp_directory_path(e);
    if (e) kb::fail("[data prepare] a folder for temporary files must exist but: ", e.message(), "; set TMPDIR");
    std::string name = (folder / "kitbash-data-XXXXXX").string();
    if (!mkdtemp(name.data()))
      throw kb::Error(kb::text("[data prepare] cannot make '", name, "': ", std::strerror(errno)), KB_IO);
    path = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

// Runs a program in a folder, its output discarded; no shell in between. Its exit code; 127 when there is no such program.
int run(const fs::path& folder, const std::vector<std::string>& words) {
  std::vector<char*> argv;
  for (const auto& w : words) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child < 0) throw kb::Error(kb::text("[data prepare] cannot start ", words[0], ": ", std::strerror(errno)), KB_IO);
  if (child == 0) {
    const int none = open("/dev/null", O_WRONLY);
    if (none >= 0) dup2(none, STDOUT_FILENO);
    if (chdir(folder.c_str()) == 0) execvp(argv[0], argv.data());
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string read_file(const fs::path& path) {
  std::ifstream f(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(f), {}};
  if (!f && !f.eof()) throw kb::Error(kb::text("[data prepare] cannot read '", path.string(), "'"), KB_IO);
  return text;
}

void write_file(const fs::path& path, const std::string& text) {
  std::FILE* f = std::fopen(path.c_str(), "wb");
  bool good = f && std::fwrite(text.data(), 1, text.size(), f) == text.size() && !std::fflush(f) && !fsync(fileno(f));
  const int why = errno;
  if (f) good = !std::fclose(f) && good;
  if (!good)
    throw kb::Error(
        kb::text("[data prepare] cannot write '", path.string(), "' (", text.size(), " bytes): ", std::strerror(why)),
        KB_IO);
}

struct Pair {
  fs::path text, index;
  std::string origin;  // for messages
};

Pair in_package(const Dataset& d, const fs::path& deb, const fs::path& temp) {
  const fs::path to = temp / "unpacked";
  if (const int rc = run(temp, {"dpkg-deb", "-x", fs::absolute(deb).string(), to.string()}))
    throw kb::Error(kb::text("[data prepare] '", deb.string(),
                             "' must be a Debian package but dpkg-deb -x ended with exit code ", rc),
                    KB_IO);
  return {to / d.text_file, to / d.index_file, deb.string()};
}

Pair find_source(const Dataset& d, const std::string& from, const fs::path& temp) {
  if (from.ends_with(".deb")) return in_package(d, from, temp);
  if (!from.empty()) {
    fs::path index = from;
    index.replace_extension().replace_extension(".index");
    return {from, index, from};
  }
  const fs::path root = "/";
  std::error_code none;
  if (fs::exists(root / d.text_file, none) && fs::exists(root / d.index_file, none))
    return {root / d.text_file, root / d.index_file, "the installed package " + d.package};
  // The name without a version: a mirror keeps only the newest one, and the hash says whether it is the right one.
  const int rc = run(temp, {"apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", d.package});
  if (!rc)
    for (const auto& f : fs::directory_iterator(temp))
      if (f.path().extension() == ".deb") return in_package(d, f.path(), temp);
  throw kb::Error(kb::text("[data prepare] apt-get download ", d.package, " must give a .deb but ended with exit code ",
                           rc, "; run apt-get update first, or fetch ", d.package, " ", d.version,
                           " elsewhere and name it with --from"),
                  KB_IO);
}

void verify(const std::string& what, const std::string& bytes, const std::string& want, const Dataset& d,
            const std::string& origin) {
  if (const std::string got = sha256(bytes); got != want)
    kb::fail("[data prepare] the ", what, " of ", d.package, " ", d.version, " must have the SHA-256 ", want,
             " but that of ", origin, " is ", got, "; get that version, or adapt ", d.path);
}

std::string to_utf8(std::string s) {  // bytes that are not UTF-8 are taken for Windows-1252
  static constexpr uint16_t high[32] = {0x20ac, 0xfffd, 0x201a, 0x0192, 0x201e, 0x2026, 0x2020, 0x2021,
                                        0x02c6, 0x2030, 0x0160, 0x2039, 0x0152, 0xfffd, 0x017d, 0xfffd,
                                        0xfffd, 0x2018, 0x2019, 0x201c, 0x201d, 0x2022, 0x2013, 0x2014,
                                        0x02dc, 0x2122, 0x0161, 0x203a, 0x0153, 0xfffd, 0x017e, 0x0178};
  for (size_t at = invalid_utf8(s); at != std::string::npos; at = invalid_utf8(s)) {
    const auto b = static_cast<unsigned char>(s[at]);
    const uint32_t c = b < 0xa0 ? high[b - 0x80] : b;
    std::string u;
    if (c < 0x800)
      u = {char(0xc0 | c >> 6), char(0x80 | (c & 63))};
    else
      u = {char(0xe0 | c >> 12), char(0x80 | (c >> 6 & 63)), char(0x80 | (c & 63))};
    s.replace(at, 1, u);
  }
  return s;
}

std::string cleaned(const std::string& entry, const Dataset& d, const std::string& headword) {
  std::string text;
  bool blank = true, dropped = false;  // the last line kept, the last line seen
  for (const std::string& line : split(entry, '\n')) {
    const std::string bare = trim(line);
    if (std::find(d.drop_lines.begin(), d.drop_lines.end(), bare) != d.drop_lines.end()) {
      dropped = true;
      continue;
    }
    if (!(bare.empty() && blank && (dropped || text.empty()))) text += line + "\n";
    blank = bare.empty(), dropped = dropped && blank;
  }
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  const size_t bad = invalid_utf8(text);
  if (bad == std::string::npos) return text;
  if (!d.windows_1252)
    kb::fail("[data prepare] entry '", headword, "' must be UTF-8 but byte ", bad, " of it is not; give 'encoding' in ",
             d.path);
  return to_utf8(text);
}

std::string folded(std::string_view text) {  // without case and runs of blanks
  std::string r;
  for (const char c : text) {
    if (std::strchr(" \t\r\n", c) && c)
      r += r.empty() || r.back() == ' ' ? "" : " ";
    else
      r += c >= 'A' && c <= 'Z' ? char(c + 32) : c;
  }
  return r;
}
std::string body(const std::string& text) {  // headwords stand at the margin, what is said about them is indented
  std::string r;
  for (const std::string& line : split(text, '\n'))
    if (line.starts_with(' ')) r += line + "\n";
  return folded(r);
}

void count(PreparedSplit& s, const std::string& text) {
  ++s.entries;
  s.bytes += int64_t(text.size());
  s.longest = std::max(s.longest, int64_t(text.size()));
}

const char* const kFiles[] = {"train.jsonl", "held_out.jsonl", "held_out.txt"};

nlohmann::json stamp_of(const Dataset& d, const Prepared& p, const fs::path& folder) {
  const auto part = [](const PreparedSplit& s) {
    return nlohmann::json{{"entries", s.entries}, {"bytes", s.bytes}, {"longest", s.longest}};
  };
  nlohmann::json j{{"manifest_sha256", d.manifest_sha256}, {"rules", kRules},  {"entries", p.entries},
                   {"duplicates", p.duplicates},           {"moved", p.moved}, {"train", part(p.train)},
                   {"held_out", part(p.held_out)}};
  for (const char* f : kFiles) j["sha256"][f] = sha256(read_file(folder / f));
  return j;
}

bool already(const Dataset& d, Prepared& p) {
  const fs::path folder = p.folder;
  std::error_code none;
  if (!fs::exists(folder / "stamp.json", none)) return false;
  for (const char* f : kFiles)
    if (!fs::exists(folder / f, none)) return false;
  try {
    const auto j = nlohmann::json::parse(read_file(folder / "stamp.json"));
    const auto part = [&](const char* name, PreparedSplit& s) {
      s = {j.at(name).at("entries"), j.at(name).at("bytes"), j.at(name).at("longest")};
    };
    Prepared q = p;
    q.entries = j.at("entries"), q.duplicates = j.at("duplicates"), q.moved = j.at("moved");
    part("train", q.train), part("held_out", q.held_out);
    if (stamp_of(d, q, folder) != j) return false;
    p = q;
    return true;
  } catch (const nlohmann::json::exception&) {  // a damaged stamp: prepare again
    return false;
  }
}

}  // namespace

SplitTexts split_entries(const std::vector<std::pair<std::string, std::string>>& entries, int64_t percent) {
  SplitTexts r;
  std::unordered_set<std::string> seen, trained;
  std::vector<const std::pair<std::string, std::string>*> held;
  for (const auto& e : entries) {
    if (!seen.insert(folded(e.second)).second) {
      ++r.duplicates;
      continue;
    }
    const std::string hash = sha256(folded(e.first)).substr(0, 15);
    if (int64_t(std::stoull(hash, nullptr, 16) % 100) < percent) {
      held.push_back(&e);
      continue;
    }
    r.train.push_back(e);
    if (std::string b = body(e.second); !b.empty()) trained.insert(std::move(b));
  }
  for (const auto* e : held) {
    const bool shared = trained.count(body(e->second)) != 0;
    r.moved += shared;
    (shared ? r.train : r.held_out).push_back(*e);
  }
  return r;
}

void check_from(const std::string& from) {
  if (from.empty()) return;
  if (!from.ends_with(".deb") && !from.ends_with(".dict.dz"))
    kb::fail("[data prepare] --from must be a .deb or a .dict.dz with the .index beside it but got '", from, "'");
  if (std::error_code e; !fs::is_regular_file(from, e))
    kb::fail("[data prepare] --from must be a file but there is none at '", from, "'");
}

Prepared prepare_dataset(const Dataset& d, const std::string& from) {
  Prepared p;
  const fs::path folder = fs::path(d.folder) / "prepared";
  p.folder = folder.string();
  if (already(d, p)) return p.fresh = false, p;

  const TempFolder temp;
  const Pair files = find_source(d, from, temp.path);
  for (const auto& f : {files.text, files.index})
    if (std::error_code none; !fs::is_regular_file(f, none))
      throw kb::Error(kb::text("[data prepare] ", files.origin, " must have the file '", f.string(), "' but has not"),
                      KB_IO);
  const std::string text = read_gzip(files.text.string()), index = read_file(files.index);
  verify("text", text, d.text_sha256, d, files.origin);
  verify("index", index, d.index_sha256, d, files.origin);

  std::vector<std::pair<std::string, std::string>> entries;
  for (const DictEntry& e : dictd_entries(index, text.size())) {
    const std::string headword = to_utf8(e.headword);
    std::string t = cleaned(text.substr(e.begin, e.size), d, headword);
    ++p.entries;
    if (!t.empty()) entries.emplace_back(headword, std::move(t));
  }
  const SplitTexts parts = split_entries(entries, d.held_out_percent);
  p.duplicates = parts.duplicates, p.moved = parts.moved;
  if (parts.train.empty() || parts.held_out.empty())
    kb::fail("[data prepare] both splits must have entries but train has ", parts.train.size(), " and held_out ",
             parts.held_out.size(), "; change 'held_out_percent' in ", d.path);

  const fs::path fresh = folder.string() + kb::text(".tmp-", getpid());
  fs::remove_all(fresh);
  fs::create_directories(fresh);
  try {
    std::string train, held_out, plain;
    const auto line = [](const auto& e) {
      return nlohmann::ordered_json{{"headword", e.first}, {"text", e.second}}.dump() + "\n";
    };
    for (const auto& e : parts.train) train += line(e), count(p.train, e.second);
    for (const auto& e : parts.held_out) held_out += line(e), plain += e.second + "\n\n", count(p.held_out, e.second);
    write_file(fresh / kFiles[0], train), write_file(fresh / kFiles[1], held_out), write_file(fresh / kFiles[2], plain);
    write_file(fresh / "stamp.json", stamp_of(d, p, fresh).dump(2) + "\n");
    // One step: whoever reads prepared/ sees the old one or the new one.
    if (renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) != 0) fs::rename(fresh, folder);
    fs::remove_all(fresh);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(fresh, ignored);
    throw;
  }
  return p;
}

}  // namespace kitbash
