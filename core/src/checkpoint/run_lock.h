// run_lock.h: a run folder belongs to one process at a time. The system frees the lock when the process ends, however it ends.
#pragma once
#include <string>

namespace kitbash {

class RunLock {
 public:
  // Makes the folder if needed, and takes `folder`/lock. Throws kb::Error with pid and host of the process that has it.
  explicit RunLock(const std::string& folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int fd_ = -1;
};

}  // namespace kitbash
