#include "checkpoint/file_ops.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <limits>

namespace kitbash {

int FileOps::create(const std::string& path) {
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
}
ssize_t FileOps::write(int fd, const void* data, size_t bytes) { return ::write(fd, data, bytes); }
int FileOps::sync(int fd) { return ::fsync(fd); }
int FileOps::close(int fd) { return ::close(fd); }
int FileOps::make_folder(const std::string& path) { return ::mkdir(path.c_str(), 0755); }

int FileOps::sync_folder(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return -1;
  const int rc = ::fsync(fd), why = errno;
  ::close(fd);
  errno = why;
  return rc;
}

int FileOps::rename(const std::string& from, const std::string& to) { return std::rename(from.c_str(), to.c_str()); }
int FileOps::exchange(const std::string& a, const std::string& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
}
int FileOps::remove(const std::string& path) { return ::unlink(path.c_str()); }
int FileOps::remove_folder(const std::string& path) { return ::rmdir(path.c_str()); }

int64_t FileOps::free_bytes(const std::string& path) {
  struct statvfs s {};
  if (::statvfs(path.c_str(), &s) != 0) return -1;
  const auto wide = static_cast<unsigned __int128>(s.f_bavail) * s.f_frsize;
  return int64_t(std::min<unsigned __int128>(wide, std::numeric_limits<int64_t>::max()));
}

FileOps& system_files() {
  static FileOps ops;
  return ops;
}

}  // namespace kitbash
