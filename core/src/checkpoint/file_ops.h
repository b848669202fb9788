// file_ops.h: every operation by which a checkpoint changes the disk, so that a test can record them, or let any of them fail.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace kitbash {

// As the system calls of these names: -1 and errno when they fail. Nothing throws.
class FileOps {
 public:
  virtual ~FileOps() = default;
  virtual int create(const std::string& path);  // a new file for writing; what has the name must not exist
  virtual ssize_t write(int fd, const void* data, size_t bytes);
  virtual int sync(int fd);
  virtual int close(int fd);
  virtual int make_folder(const std::string& path);
  virtual int sync_folder(const std::string& path);
  virtual int rename(const std::string& from, const std::string& to);
  virtual int exchange(const std::string& a, const std::string& b);  // both names at once
  virtual int remove(const std::string& path);                       // a file
  virtual int remove_folder(const std::string& path);
  virtual int64_t free_bytes(const std::string& path);  // for this user
};

FileOps& system_files();

}  // namespace kitbash
