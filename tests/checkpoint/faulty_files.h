// faulty_files.h: file operations that are recorded, and of which the n-th can fail, or be the last that has an effect.
#pragma once
#include <algorithm>
#include <cerrno>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/file_ops.h"

namespace kitbash {

class FaultyFiles : public FileOps {
 public:
  int64_t fail_at = -1;    // number of the operation, from 0, that fails once, with
  int error = EIO;         // this; later ones work
  int64_t stop_at = -1;    // from this operation on nothing has an effect, as for a process that was killed
  size_t most = SIZE_MAX;  // bytes that one write takes
  int64_t room = -1;       // what free_bytes says; -1: the truth
  int64_t count = 0;
  std::vector<std::string> trace;  // "write model-00001...", of those that had an effect; runs of writes are one line

  int create(const std::string& p) override {
    const int fd = blocked("create", p) ? -1 : FileOps::create(p);
    if (fd >= 0) open_[fd] = p;
    return fd;
  }
  ssize_t write(int fd, const void* d, size_t n) override {
    if (!blocked("write", open_[fd])) return FileOps::write(fd, d, std::min(n, most));
    // What a full disk or a killed process leaves of a write: half of it.
    if (n > 1 && (count - 1 == fail_at || count - 1 == stop_at)) (void)!FileOps::write(fd, d, n / 2);
    errno = error;
    return -1;
  }
  // Recorded only: no test cuts the power, and the disk is slow.
  int sync(int fd) override { return blocked("sync", open_[fd]) ? -1 : 0; }
  int close(int fd) override {
    const bool no = blocked("close", open_[fd]);
    const int rc = FileOps::close(fd);  // a process that ends closes all; a failed close has closed
    if (no) errno = error;
    return no ? -1 : rc;
  }
  int make_folder(const std::string& p) override { return blocked("make_folder", p) ? -1 : FileOps::make_folder(p); }
  int sync_folder(const std::string& p) override { return blocked("sync_folder", p) ? -1 : 0; }
  int rename(const std::string& a, const std::string& b) override {
    return blocked("rename", a + " " + b) ? -1 : FileOps::rename(a, b);
  }
  int exchange(const std::string& a, const std::string& b) override {
    return blocked("exchange", a + " " + b) ? -1 : FileOps::exchange(a, b);
  }
  int remove(const std::string& p) override { return blocked("remove", p) ? -1 : FileOps::remove(p); }
  int remove_folder(const std::string& p) override {
    return blocked("remove_folder", p) ? -1 : FileOps::remove_folder(p);
  }
  int64_t free_bytes(const std::string& p) override { return room >= 0 ? room : FileOps::free_bytes(p); }

 private:
  bool blocked(const std::string& op, const std::string& what) {
    const int64_t n = count++;
    if (n == fail_at || (stop_at >= 0 && n >= stop_at)) {
      errno = error;
      return true;
    }
    const std::string line = op + " " + what;
    if (trace.empty() || trace.back() != line) trace.push_back(line);
    return false;
  }
  std::map<int, std::string> open_;
};

}  // namespace kitbash
