// process.h: the program as a child, with its output in a file.
#pragma once
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "fixture.h"

namespace kitbash::test {

class Child {
 public:
  // `largest_file`: RLIMIT_FSIZE; 0: none.
  Child(std::vector<std::string> arguments, std::string output, uint64_t largest_file = 0)
      : output_(std::move(output)) {
    arguments.insert(arguments.begin(), KITBASH);
    std::vector<char*> argv;
    for (std::string& a : arguments) argv.push_back(a.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    const int fd = open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(fd, STDOUT_FILENO), dup2(fd, STDERR_FILENO);
    const rlimit limit{largest_file, largest_file};
    if (largest_file) setrlimit(RLIMIT_FSIZE, &limit);
    setenv("KITBASH_PLUGIN_PATH", KITBASH_PLUGINS, 1);
    execv(argv[0], argv.data());
    _exit(127);
  }
  void send(int signal) const { kill(pid_, signal); }
  // Exit code, or minus the signal that ended it.
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::string text() const { return slurp(output_); }

 private:
  std::string output_;
  pid_t pid_ = -1;
};

inline void pause_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }
inline double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace kitbash::test
