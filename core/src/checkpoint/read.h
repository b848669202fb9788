// read.h: reading files of a checkpoint with plain reads: a bad sector is an error here, not a signal, and what is read does
// not count as memory of the process.
#pragma once
#include <cstdint>
#include <string>

namespace kitbash {

class InputFile {  // regular files only, no links
 public:
  explicit InputFile(const std::string& path);  // throws kb::Error with KB_IO
  ~InputFile();
  InputFile(const InputFile&) = delete;
  const std::string& path() const { return path_; }
  int64_t bytes() const { return bytes_; }
  void read(int64_t offset, void* to, int64_t bytes) const;  // all of them, or throws kb::Error with KB_IO

 private:
  std::string path_;
  int fd_ = -1;
  int64_t bytes_ = 0;
};

std::string read_small_file(const std::string& path);

}  // namespace kitbash
