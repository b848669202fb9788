// fixture.h: a private folder for the test plugins. They are copied, since the folder of the build may be writable by a
// group (it depends on the umask), and since tests change them.
#pragma once
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "kitbash/error.h"

namespace kitbash::test {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    std::string t = (fs::temp_directory_path() / ("kitbash-test-" + std::string(6, 'X'))).string();
    if (!::mkdtemp(t.data())) kb::fail("cannot make a folder like ", t);
    path_ = fs::canonical(t).string();
  }
  Folder(const Folder&) = delete;
  ~Folder() { fs::remove_all(path_); }

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  // Copies the built plugin `name` (test_<...>) as libkb_<as>.so; returns its path.
  std::string plugin(const std::string& name, std::string as = "") const {
    const std::string to = *this / ("libkb_" + (as.empty() ? name : as) + ".so");
    fs::copy_file(std::string(KITBASH_TEST_PLUGINS) + "/libkb_" + name + ".so", to);
    fs::permissions(to, fs::perms(0755));
    return to;
  }
  std::string file(const std::string& name, const std::string& content) const {
    const std::string to = *this / name;
    std::ofstream(to, std::ios::binary) << content;
    fs::permissions(to, fs::perms(0644));
    return to;
  }

 private:
  std::string path_;
};

inline std::string content(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const kb::Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace kitbash::test
