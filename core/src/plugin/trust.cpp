#include "plugin/trust.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "kitbash/error.h"

namespace kitbash {
namespace {

Problems examine(const std::string& path, const std::string& subject) {
  Problems out;
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0) return out;
  const bool group = s.st_mode & S_IWGRP, everyone = s.st_mode & S_IWOTH;
  if (group || everyone)
    out.push_back(kb::text(subject, "is writable by ",
                           group && everyone ? "group and everyone"
                           : group           ? "group"
                                             : "everyone",
                           "; refuse to load (chmod go-w '", path, "')"));
  if (s.st_uid != 0 && s.st_uid != ::geteuid())
    out.push_back(kb::text(subject, "belongs to user ", s.st_uid, ", which is neither you (", ::geteuid(),
                           ") nor root; refuse to load (copy it to a folder of yours, or chown it)"));
  return out;
}

}  // namespace

Problems distrust(const std::string& path) {
  Problems out = examine(path, "");
  const std::string folder = std::filesystem::path(path).parent_path().string();
  for (std::string& p : examine(folder, "lies in a folder that ")) out.push_back(std::move(p));
  return out;
}

Problems distrust_folder(const std::string& folder) { return examine(folder, ""); }

}  // namespace kitbash
