#include "checkpoint/read.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "kitbash/error.h"

namespace kitbash {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw kb::Error("[" + path + "] " + what, KB_IO);
}

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path) {
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd_ < 0)
    fail(path, errno == ELOOP ? "must be a regular file" : "cannot be opened: " + std::string(std::strerror(errno)));
  struct stat st {};
  if (::fstat(fd_, &st) != 0 || !S_ISREG(st.st_mode)) {
    ::close(fd_);
    fail(path, "must be a regular file");
  }
  bytes_ = st.st_size;
}
InputFile::~InputFile() { ::close(fd_); }

void InputFile::read(int64_t offset, void* to, int64_t bytes) const {
  for (char* p = static_cast<char*>(to); bytes > 0;) {
    const ssize_t n = ::pread(fd_, p, size_t(std::min<int64_t>(bytes, 1 << 30)), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(path_, "cannot be read at byte " + std::to_string(offset) + ": " + std::strerror(errno));
    if (n == 0) fail(path_, "ends at byte " + std::to_string(offset) + " where more is due");
    p += n, offset += n, bytes -= n;
  }
}

std::string read_small_file(const std::string& path) {
  InputFile f(path);
  std::string s(size_t(f.bytes()), '\0');
  f.read(0, s.data(), f.bytes());
  return s;
}

}  // namespace kitbash
