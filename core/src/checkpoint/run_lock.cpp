#include "checkpoint/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/text.h"
#include "kitbash/error.h"

namespace kitbash {

RunLock::RunLock(const std::string& folder) {
  std::error_code e;
  std::filesystem::create_directories(folder, e);
  const std::string path = folder + "/lock";
  if (e) throw kb::Error("[" + folder + "] cannot be made: " + e.message(), KB_IO);
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd_ < 0) throw kb::Error("[" + path + "] cannot be opened: " + std::strerror(errno), KB_IO);
  int rc;
  while ((rc = ::flock(fd_, LOCK_EX | LOCK_NB)) != 0 && errno == EINTR) {
  }
  if (rc != 0) {
    const int why = errno;
    char holder[512];
    const ssize_t n = ::pread(fd_, holder, sizeof holder, 0);
    ::close(fd_);
    if (why != EWOULDBLOCK) throw kb::Error("[" + path + "] cannot be locked: " + std::strerror(why), KB_IO);
    const std::string who = trim({holder, size_t(n > 0 ? n : 0)});
    throw kb::Error("[" + folder + "] a run folder must be written by one process but " +
                        (who.empty() ? "another has it" : who + " has it") +
                        "; wait for it, stop it, or name another folder",
                    KB_IO);
  }
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  const std::string me = "process " + std::to_string(::getpid()) + " on " + host + "\n";
  if (::ftruncate(fd_, 0) != 0 || ::pwrite(fd_, me.data(), me.size(), 0) != ssize_t(me.size())) {
    const int why = errno;
    ::close(fd_);
    throw kb::Error("[" + path + "] cannot be written: " + std::strerror(why), KB_IO);
  }
}

// The file stays: removing it would let two processes lock two files of the same name.
RunLock::~RunLock() {
  if (::ftruncate(fd_, 0) != 0) {  // the name in it is a courtesy only
  }
  ::close(fd_);
}

}  // namespace kitbash
